#pragma once
// Splitting, dropping and merging the iteration axes of one tensor expression, so that index expressions become affine.

#include "program/program.h"

namespace tilewright {

/// The same function with axis `k` split into k (extent / inner) and k + 1 (inner); later axes move up by one. `inner`
/// must divide the extent as an expression.
///     c[i0] = a[i0 // 64, i0 % 64], i0 < 768   -> split_axis(0, 64) ->   c[64*i0 + i1] = a[i0, i1], i0 < 12, i1 < 64
TensorExpr split_axis(const TensorExpr& expr, size_t k, Expr inner);
/// split_axis() without tidy(): accesses keep their slots, and output_index is set.
TensorExpr split_axis_only(const TensorExpr& expr, size_t k, Expr inner);

/// The same function with its axes normalised, up to a fixed point:
///   - an axis that is divided, i // c or i % c with a c that divides its extent, is split by c;
///   - unit axes are removed;
///   - adjacent axes i, j (both spatial or both of the reduction) that occur only as i * extent(j) + j, also in the
///     output's index, are merged.
/// output_index is set if axis k is no longer dimension k.
TensorExpr normalize_axes(const TensorExpr& expr);

}  // namespace tilewright
