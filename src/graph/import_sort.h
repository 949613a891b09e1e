#pragma once
// Topological sort of nodes.

#include "graph/graph.h"

namespace tilewright::import_detail {

/// Sorts g.nodes so that every value is defined before a node, or a subgraph of a node, reads it. The sort is stable:
/// among the ready nodes the first in the file comes first. Names must be unique in g and its subgraphs. Throws
/// ModelError with the nodes of a cycle.
void sort_topologically(Graph& g);

}  // namespace tilewright::import_detail
