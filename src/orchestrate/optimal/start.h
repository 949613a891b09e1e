#pragma once
// The greedy rule's kernels within a piece of the graph: the plan that the piece's search begins with.

#include <vector>

#include "orchestrate/optimal/dag.h"
#include "orchestrate/optimal/greedy.h"
#include "orchestrate/optimal/kernels.h"

namespace tilewright::optimal {

/// Each kernel writes what it does in the whole plan, and what the piece must give and no kernel writes (a value that
/// it computes for itself, and a kernel of another piece as well). Where one reads a value in another layout than it
/// is in, or the piece must give it in another one, there is a conversion. Nodes of the piece are primitives, tensors
/// values.
std::vector<Candidate> start_of(const Piece& piece, const GreedyPlan& greedy);

}  // namespace tilewright::optimal
