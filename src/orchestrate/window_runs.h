#pragma once
// Convolutions over few channels, for matrix instructions of CPUs.

#include "orchestrate/f32_products.h"
#include "program/program.h"
#include "tile/tile.h"

namespace tilewright {

/// Rewrites convolutions with weights whose channels are too few for a run of a matrix instruction: a copy of the data
/// holds all channels and columns of a window contiguously, padded so that the sum over both is one axis of whole
/// steps. MatrixType::BF16 is for those of f32 (narrow_operands rounds them later), I8 for sums of bytes.
///
///     y[o,h,w] = sum(c < 3, i < 7, j < 7) x[c, 2h + i - 3, 2w + j - 3] * v[o,c,i,j]        3 channels, 224 columns
///  -> r[h,k] = x[k % 4, h - 3, k // 4 - 3], 0 where k % 4 = 3 and outside, k < 4 * 229;
///     y[o,h,w] = sum(i < 7, k < 28) r[2h + i, 8w + k] * u[o,i,k]
Program gather_window_runs(Program program, MatrixType type, const ProductFilter& may = {});

}  // namespace tilewright
