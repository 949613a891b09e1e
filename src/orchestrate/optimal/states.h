#pragma once
// Execution states and convex sets: which primitives can be one kernel (Korch §4.1).

#include <functional>
#include <vector>

#include "orchestrate/optimal/dag.h"

namespace tilewright::optimal {

/// Lines 3 to 11 of Algorithm 1: every execution state (Definition 2) once, by depth-first search, the empty one and
/// the whole graph included. Throws InternalError past `most`: their number grows exponentially with the graph's width.
std::vector<NodeSet> execution_states(const Dag& dag, size_t most = 1'000'000);

/// How many there are, as far as `most`.
size_t count_states(const Dag& dag, size_t most);

/// Lines 13 to 16, Theorem 3 as it stands: the convex sets are the differences of two states, one inside the other.
/// Ascending, each once (Algorithm 1 would profile a set for each pair of states that gives it).
std::vector<NodeSet> state_differences(const std::vector<NodeSet>& states);

struct ConvexOptions {
    size_t most_nodes = SIZE_MAX;  ///< of a set
    size_t most_sets = 20'000;     ///< single nodes are listed all the same
    /// List connected sets only, those whose nodes are joined by edges from producer to consumer. False: all of Theorem
    /// 3's sets. A set that is not connected saves launches and, where its parts read the same input (siblings), reads
    /// of that input. These savings are given up: the number of sets without the restriction is bounded by the graph's
    /// width alone. So the optimum is that of connected kernels, not of all of Korch's candidates.
    bool connected = true;
    /// True where neither this set nor any convex set around it can be a kernel: two products without a scheduler for
    /// chains, more scratch than there is. Called at most once for every set that is listed or pruned.
    std::function<bool(const NodeSet&)> pruned;
};

struct ConvexSets {
    std::vector<NodeSet> sets;  ///< by size, then ascending; no empty one
    size_t pruned = 0;          ///< refused, with everything around them that was not looked at
    /// All sets of at most so many nodes are there. Less than what was asked for where `most_sets` was in the way:
    /// then the largest number that was not.
    size_t most_nodes = 0;
    bool capped = false;
};

/// Every non-empty convex set once, straight away, without the states.
///
/// Take a convex set C and nodes F that are excluded. Let v be the smallest neighbour of C outside of F. The connected
/// convex sets around C that avoid F are those that contain v, and the others. The latter are those around C that avoid
/// F + v. The former are those around closure(C + v) (every convex set around C + v contains its closure, which is
/// connected as well) that avoid F; there are none if the closure meets F. So the two branches list each set once, and
/// no branch is empty: one that goes without v leaves C itself. Started at every node with all smaller ones excluded,
/// this lists every connected convex set: by Theorem 3, the connected ones among the differences of states. With any
/// node in place of a neighbour it lists all of them. The work is a closure for each set and node beside it.
///
/// `most_nodes` and `pruned` cut the first branch alone; both hold for everything in it.
ConvexSets convex_sets(const Dag& dag, const Paths& paths, const ConvexOptions& options);

}  // namespace tilewright::optimal
