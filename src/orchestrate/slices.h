#pragma once
// Depth-first slicing. Winograd's transforms and the products between them are separate kernels, because each needs
// another loop order, and their intermediate tensors are larger than the inputs:
//
//     x [64, 224, 224] 12.8 MB   ->   tiles 28.9 MB   ->   products 28.9 MB   ->   y 12.8 MB
//
// Through memory, they take longer than their arithmetic. With tiles laid out as [56, 36, 56, 64], rows of tiles
// outermost, each kernel needs one row of tiles of the previous one at a time. All three kernels run for the first row,
// then for the second, and the intermediate tensors are 516 KB that stay in L2. This is MCFuser's chain of kernels
// around one outer loop, but the loop is the executor's, and the kernels do not change.

#include <optional>
#include <vector>

#include "orchestrate/plan.h"
#include "schedule/default_schedule.h"

namespace tilewright {

/// Finds runs of the plan's kernels for depth-first slicing. `kernels`: by step, the kernel if the step has one. The
/// axes along which a kernel is sliced become its outermost parallel loops, and its intermediate tensors get a cache
/// hint (TileProgram::near).
///
/// A run consists of kernels for which
/// - each writes one value, of constant size and larger than L2, that only the next kernel reads
/// - a slice of the value, along its first dimensions, fits half of L2, and both kernels touch one slice for one point
///   of some of their axes: at offset slice * size + r, 0 <= r < size
/// - those axes are the same for the input and the output of a kernel, and its register tiles do not cover them
/// - data that a kernel reads again for every slice (weights) is at most four times the slice
/// - there are at least four slices per thread
std::vector<Slices> slice(const Plan& plan, std::vector<std::optional<TileProgram>>& kernels, const Target& target);

}  // namespace tilewright
