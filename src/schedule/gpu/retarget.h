#pragma once
// Trees of chains, which are searched for as on a CPU, for a GPU.

#include "schedule/gpu/gpu_schedule.h"

namespace tilewright {

/// The tree with a GPU's micro-kernels and copies: products on warps side by side along the rows, each with all columns
/// of the block; operands in shared memory, copied where nothing more cuts them, a step ahead of the loop.
TileProgram for_gpu(TileProgram tree, const Target& target, Precision precision);
/// The same with products on warpgroups: each with 64 rows and all columns, operands swizzled where the
/// instruction reads them. Nothing where one of the products has no such instruction (fits_group), or its block no
/// whole ones of it.
std::optional<TileProgram> for_gpu_groups(TileProgram tree, const Target& target, Precision precision);

}  // namespace tilewright
