#pragma once
// Cuts a primitive graph at narrow points into pieces of bounded size, each orchestrated by itself. (Korch's artefact
// has such cuts as lists written by hand.)
//
// What a cut loses: a kernel may not reach over it, so every value that crosses is written and read back. Take the best
// plan of the whole graph and split the kernels that reach over the cut in two: what this adds is a launch a kernel and
// the way of the crossing values through memory, so the best plan with the cut is at most that much worse. The weight
// of what crosses is therefore what is minimised. Where the one value that crosses is large enough to be materialised
// anyway, as between the layers of most models, nothing is lost but the reading of it.

#include <functional>
#include <vector>

#include "orchestrate/optimal/dag.h"

namespace tilewright::optimal {

struct PartitionOptions {
    size_t most_nodes = 40;  ///< of a piece, at least 1
    /// Nodes that are pieces of their own. They keep their place: whatever stands before one of them in the graph's
    /// order is in an earlier piece, whatever stands behind it in a later one.
    std::function<bool(NodeId)> alone;
    /// Sets of nodes that no cut should go through, say the kernels of a plan that is there already. Comes first: as
    /// few as possible are split, and only then the weight counts.
    std::vector<std::vector<NodeId>> together;
};

struct Partition {
    std::vector<std::vector<NodeId>> pieces;  ///< in an order that can run, and the nodes of each as well
    size_t cuts = 0;                          ///< between pieces, those around lone nodes apart
    double crossing = 0;                      ///< weight of the tensors that cross those cuts, once for each they cross
    size_t split = 0;                         ///< how many of `together` a cut goes through, once for each cut
};

/// Of two orders, the graph's own and a depth-first one (a node as soon as it can, what reads the latest result first),
/// the cheapest cuts by dynamic programming over positions: cost(j) = min over j - most_nodes <= i < j of cost(i) +
/// cut(i); of equally cheap ones the fewest. The same graph always gives the same pieces.
Partition partition(const Dag& dag, const PartitionOptions& options);

}  // namespace tilewright::optimal
