#pragma once
// The iteration axes of one tensor expression: split, dropped, merged, so that index expressions become affine.

#include "program/program.h"

namespace tilewright {

/// The same function with axis `k` as two, k (extent / inner) and k + 1 (inner); later axes move up by one. `inner`
/// must divide the extent as an expression.
///     c[i0] = a[i0 // 64, i0 % 64], i0 < 768   -> split_axis(0, 64) ->   c[64*i0 + i1] = a[i0, i1], i0 < 12, i1 < 64
TensorExpr split_axis(const TensorExpr& expr, size_t k, Expr inner);

/// The same function over simpler axes, until nothing changes:
///   - an axis that is divided, i // c or i % c with a c that divides its extent, is split by c;
///   - an axis of one point goes;
///   - neighbouring axes i, j (both spatial or both of the reduction) that appear only as i * extent(j) + j, in the
///     output's index too, become one.
/// output_index is written where axis k no longer is dimension k.
TensorExpr normalize_axes(const TensorExpr& expr);

}  // namespace tilewright
