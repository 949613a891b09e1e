#pragma once
// Kernels run slice by slice. Winograd's transforms and the products between them are kernels of their own, as each
// needs another order of loops, and what they hand on is larger than what it is made of:
//
//     x [64, 224, 224] 12.8 MB   ->   tiles 28.9 MB   ->   products 28.9 MB   ->   y 12.8 MB
//
// Through memory that takes longer than computing it. But where tiles are laid out as [56, 36, 56, 64], rows of tiles
// outermost, the kernels need of each other one row of tiles at a time: all three run for the first row, then for the
// second, and what they hand on is 516 KB in the second-level cache, in memory of that size. It is MCFuser's chain of
// kernels around one outer loop, but the loop is the executor's, the kernels stay what they are.

#include <optional>
#include <vector>

#include "orchestrate/plan.h"
#include "schedule/default_schedule.h"

namespace tilewright {

/// Finds runs of the plan's kernels for depth-first slicing. `kernels`: by step, the kernel where it has one; the axes
/// along which they are sliced become their outermost parallel loops, and what they hand on is near
/// (TileProgram::near).
///
/// Kernels are taken together where
///  - each writes one value, of a size that is known and larger than the second-level cache; the next alone reads it
///  - a slice of it, along its first dimensions, fits into half that cache, and both kernels touch one slice for one
///    point of some axes of their own: at offset slice * size + rest, 0 <= rest < size
///  - those axes are the same for what a kernel reads and what it writes, and its register tiles have no part in them
///  - what a kernel reads anew for every slice (weights) is at most four times what is handed on in it
///  - there are at least four slices a thread
std::vector<Slices> slice(const Plan& plan, std::vector<std::optional<TileProgram>>& kernels, const Target& target);

}  // namespace tilewright
