#pragma once
// Candidate kernels from convex sets: the output sets of a set (Korch §4.1, Definition 4), and pruning of sets that no
// optimal plan needs.

#include <vector>

#include "orchestrate/optimal/dag.h"

namespace tilewright::optimal {

/// The output sets of a kernel of these nodes: subsets of the exposed tensors (needed, or read outside of the set). A
/// tensor that is needed outside but not written here is recomputed elsewhere.
///
/// Algorithm 1 enumerates all subsets. Here every node without a reader in the set writes something: otherwise the set
/// without that node has the same outputs, computes less, and is a candidate itself. At most `most` of these subsets,
/// in this order: all exposed tensors; as few as possible; all but one; all but two; and so on. Empty where a node
/// without a reader in the set exposes no tensor.
std::vector<std::vector<TensorId>> output_sets(const Dag& dag, const NodeSet& set, size_t most);

/// For each set, the minimum known cost of computing all its exposed tensors. The alternatives are one kernel, at
/// `cost` (infinite: there is no such kernel), or single kernels for some first or last nodes and the minimum known
/// cost of each connected component of the remainder. `sets` are convex, in ascending size, and closed under removing
/// single nodes that way, up to their maximum size (as convex_sets returns them).
///
/// A kernel that costs at least as much as the cheapest known alternative *without it* is pruned from the candidates.
/// In any plan the smaller kernels can replace it: they can run in its place, read its inputs or their own results, and
/// write its outputs. They may be pruned for the same reason, but then in favour of still smaller ones, and single
/// nodes are never pruned, so an optimal plan remains. A lower bound of the kernel's cost suffices if the other costs
/// are upper bounds.
struct KnownCost {
    double with = 0;     ///< the minimum, including the set as one kernel
    double without = 0;  ///< the minimum of smaller kernels; infinite for a single node
};
std::vector<KnownCost> known_costs(const Dag& dag, const Paths& paths, const std::vector<NodeSet>& sets,
                                   const std::vector<double>& cost);

}  // namespace tilewright::optimal
