#pragma once
// Sets of nodes that may be one kernel as a chain (schedule/chain): products, or a product and the normalisation in
// front of it. Such sets are large, and most sets with a product and something else that reduces are no kernel, so they
// are not found among all convex sets but made from the products.

#include <functional>
#include <vector>

#include "orchestrate/optimal/dag.h"

namespace tilewright::optimal {

enum class NodeWork : uint8_t { Elementwise, Reduction, Product };

/// Of every two or three products that are connected through other nodes alone, and of every product with the
/// reductions that reach it through elementwise nodes alone and those that reach these so (a variance needs a mean):
/// the smallest convex set around them with what feeds nothing else from in between, if it holds no further product;
/// the same with the elementwise nodes that feed nothing else in front; and with the elementwise ones behind that alone
/// read the result. In order of the first product, smaller ones first, at most `most`.
///
///     k -> transpose -> QK -> max, exp, sum -> PV -> scale:   {QK .. PV}, {transpose, QK .. PV}, {transpose .. scale}
std::vector<NodeSet> chain_sets(const Dag& dag, const Paths& paths, const std::function<NodeWork(NodeId)>& work,
                                size_t most);

}  // namespace tilewright::optimal
