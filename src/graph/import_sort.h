#pragma once
// Nodes into topological order.

#include "graph/graph.h"

namespace tilewright::import_detail {

/// Sorts g.nodes so that every value is defined before it is read, by a node or a subgraph of one. Nodes already in
/// such an order keep it; else the first that is ready comes first. Names must be unique in g and its subgraphs.
/// Throws ModelError naming the nodes of a cycle.
void sort_topologically(Graph& g);

}  // namespace tilewright::import_detail
