#pragma once
// Conversion of trees of GEMM chains, which are searched as on a CPU, to a GPU.

#include "schedule/gpu/gpu_schedule.h"

namespace tilewright {

/// The tree with a GPU's micro-kernels and copies. Warps of a product lie along its rows, and each has all columns of
/// the block. Operands are copied to shared memory one step ahead, in the outermost body whose inner loops do not cut
/// the copy.
TileProgram for_gpu(TileProgram tree, const Target& target, Precision precision);
/// The same with products on warpgroups: each has 64 rows and all columns, and operands are swizzled where the
/// instruction reads them. Nothing where a product has no such instruction (fits_group), or its block is not a multiple
/// of it.
std::optional<TileProgram> for_gpu_groups(TileProgram tree, const Target& target, Precision precision);

}  // namespace tilewright
