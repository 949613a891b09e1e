#pragma once
// From convex sets to candidate kernels: which outputs a set may have (Korch §4.1, Definition 4), and which sets no
// optimal plan needs.

#include <vector>

#include "orchestrate/optimal/dag.h"

namespace tilewright::optimal {

/// Sets of outputs that a kernel of these nodes may have, out of what is exposed (needed, or read outside of the set).
/// A value that is needed outside but not written here is computed again elsewhere.
///
/// Algorithm 1 goes through all subsets. Here every node that no other of the set reads writes something: else the set
/// without it gives the same, computes less, and is a candidate too. At most `most` of the others, in this order: all
/// that is exposed; as little as possible; all but one; all but two; and so on. Empty where a node that none of the set
/// reads has nothing to write.
std::vector<std::vector<TensorId>> output_sets(const Dag& dag, const NodeSet& set, size_t most);

/// For each set what the cheapest way costs that is known of computing all that is exposed of it: by itself, for
/// `cost` (infinite where there is no such kernel), or its first or last nodes one by one and what remains, in its
/// connected parts, in the cheapest way known. `sets` are convex, by ascending size, and closed under taking single
/// nodes off that way, as far as their number of nodes goes (convex_sets gives such).
///
/// A kernel that costs at least as much as the cheapest known way *without it* can be left out of the candidates: in
/// any plan the smaller kernels can take its place, since they run where it ran, read what it read or what they made,
/// and make what it made. They may be left out for the same reason themselves, but then for smaller ones still, and
/// single nodes never are; so some optimal plan remains. A lower bound of the kernel's cost will do, where the other
/// costs are upper bounds.
struct KnownCost {
    double with = 0;     ///< the cheapest, the set as one kernel included
    double without = 0;  ///< of smaller kernels; infinite for a single node
};
std::vector<KnownCost> known_costs(const Dag& dag, const Paths& paths, const std::vector<NodeSet>& sets,
                                   const std::vector<double>& cost);

}  // namespace tilewright::optimal
