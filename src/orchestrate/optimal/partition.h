#pragma once
// Partition of a primitive graph at narrow cuts into pieces of bounded size, each orchestrated separately. (Korch's
// artefact has such cuts as hand-written lists.)
//
// The loss of a cut: no kernel crosses it, so every crossing value is written and read back. Take the best plan of the
// whole graph and split its kernels that cross the cut. This adds a launch per kernel and the memory traffic of the
// crossing values, so the best plan with the cut is at most that much worse. The weight of crossing values is therefore
// minimised. A single crossing value that is large enough to be materialised anyway, as between the layers of most
// models, only costs another read.

#include <functional>
#include <vector>

#include "orchestrate/optimal/dag.h"

namespace tilewright::optimal {

struct PartitionOptions {
    size_t most_nodes = 40;  ///< maximum nodes of a piece, at least 1
    /// Nodes that are pieces of their own. All nodes before one of them in the graph's order are in earlier pieces, all
    /// nodes after it in later ones.
    std::function<bool(NodeId)> alone;
    /// Sets of nodes that cuts should not split, such as the kernels of an existing plan. The number of split sets is
    /// minimised first, then the weight.
    std::vector<std::vector<NodeId>> together;
};

struct Partition {
    std::vector<std::vector<NodeId>> pieces;  ///< in an order that can run, as are the nodes of each
    size_t cuts = 0;                          ///< between pieces, except those around single nodes of `alone`
    double crossing = 0;                      ///< weight of tensors that cross cuts, once per cut
    size_t split = 0;                         ///< sets of `together` that cuts split, once per cut
};

/// The cheapest cuts of two orders, the graph's own and a depth-first one (which schedules the reader of the latest
/// result first), by dynamic programming over positions: cost(j) = min over j - most_nodes <= i < j of cost(i) +
/// cut(i). Ties are broken by fewer cuts. Deterministic.
Partition partition(const Dag& dag, const PartitionOptions& options);

}  // namespace tilewright::optimal
