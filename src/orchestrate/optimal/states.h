#pragma once
// Execution states and convex sets: the sets of primitives that can be one kernel (Korch §4.1).

#include <functional>
#include <vector>

#include "orchestrate/optimal/dag.h"

namespace tilewright::optimal {

/// Lines 3 to 11 of Algorithm 1: every execution state (Definition 2) once, by depth-first search, including the empty
/// one and the whole graph. Throws InternalError beyond `most`: the number grows exponentially with the graph's width.
std::vector<NodeSet> execution_states(const Dag& dag, size_t most = 1'000'000);

/// The number of execution states, counted up to `most`.
size_t count_states(const Dag& dag, size_t most);

/// Lines 13 to 16, Theorem 3: the convex sets are the differences of two nested states. Ascending, without duplicates
/// (Algorithm 1 would profile a set once for each pair of states that gives it).
std::vector<NodeSet> state_differences(const std::vector<NodeSet>& states);

struct ConvexOptions {
    size_t most_nodes = SIZE_MAX;  ///< of a set
    size_t most_sets = 20'000;     ///< single nodes are always listed
    /// List connected sets only, whose nodes are joined by edges from producer to consumer; false: all sets of Theorem
    /// 3. A set that is not connected saves launches and, where its parts read the same input (siblings), reads of that
    /// input. These savings are lost, because the number of sets without the restriction is bounded only by the graph's
    /// width. The optimum is therefore that of connected kernels, not of all of Korch's candidates.
    bool connected = true;
    /// True if neither this set nor any convex superset can be a kernel: two products without a scheduler for chains,
    /// too much scratch. Called at most once for each set that is listed or pruned.
    std::function<bool(const NodeSet&)> pruned;
};

struct ConvexSets {
    std::vector<NodeSet> sets;  ///< by size, then ascending; without the empty set
    size_t pruned = 0;          ///< pruned sets; their supersets were not enumerated
    /// All sets of up to this number of nodes are listed. Smaller than requested if `most_sets` was reached: then the
    /// largest number whose sets were all listed.
    size_t most_nodes = 0;
    bool capped = false;
};

/// Every non-empty convex set once, enumerated directly, without the states.
///
/// Take a convex set C and excluded nodes F. Let v be the smallest neighbour of C outside of F. The connected convex
/// supersets of C that avoid F are those that contain v, and the others. The latter are the supersets of C that avoid F
/// and v. The former are the supersets of closure(C + v) (every convex superset of C + v contains its closure, which is
/// connected as well) that avoid F; there are none if the closure meets F. The two branches list each set once, and no
/// branch is empty: the one without v contains C itself. Started at every node with all smaller ones excluded, this
/// lists every connected convex set: by Theorem 3, the connected ones among the differences of states. With any node
/// instead of a neighbour it lists all of them. The cost is one closure per set and neighbour.
///
/// `most_nodes` and `pruned` only cut the first branch; both hold for all its sets.
ConvexSets convex_sets(const Dag& dag, const Paths& paths, const ConvexOptions& options);

}  // namespace tilewright::optimal
