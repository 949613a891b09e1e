#pragma once
// The kernels of the greedy plan within a piece of the graph, the initial plan of the piece's search.

#include <vector>

#include "orchestrate/optimal/dag.h"
#include "orchestrate/optimal/greedy.h"
#include "orchestrate/optimal/kernels.h"

namespace tilewright::optimal {

/// Each kernel writes its outputs in the greedy plan, and needed tensors of the piece that no kernel writes (a value
/// that it computes for itself, as a kernel of another piece does). A conversion is added where a kernel reads a value
/// in another layout than it has, or the piece's boundary requires another one. Nodes of the piece are primitives,
/// tensors are values.
std::vector<Candidate> start_of(const Piece& piece, const GreedyPlan& greedy);

}  // namespace tilewright::optimal
