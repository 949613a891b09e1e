#pragma once
// Sets of nodes that may become one kernel as a chain (schedule/chain): several products, or a normalisation and the
// product that reads it. Such sets are large, and most sets with a product and another reduction are no kernel. They
// are therefore built from the products instead of being filtered from all convex sets.

#include <functional>
#include <vector>

#include "orchestrate/optimal/dag.h"

namespace tilewright::optimal {

enum class NodeWork : uint8_t { Elementwise, Reduction, Product };

/// Sets for every two or three products connected only through other nodes, and for every product with the reductions
/// that reach it through elementwise nodes only and those that reach these likewise (a variance needs a mean). The sets
/// are: the smallest convex set around these nodes and elementwise nodes that feed only its inner ones (masks, scales),
/// if it contains no further product; this set with the elementwise nodes that feed only its first products; and with
/// following elementwise nodes that are the only readers of the result. At most `most` sets, in the order of their
/// first products, smaller ones first.
///
///     k -> transpose -> QK -> max, exp, sum -> PV -> scale:   {QK .. PV}, {transpose, QK .. PV}, {transpose .. scale}
std::vector<NodeSet> chain_sets(const Dag& dag, const Paths& paths, const std::function<NodeWork(NodeId)>& work,
                                size_t most);

}  // namespace tilewright::optimal
