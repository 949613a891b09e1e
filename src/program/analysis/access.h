#pragma once
// Dependencies of a tensor expression's reads on its axes, and their strides in memory.

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// Returns, per dimension, the stride in elements of a row-major tensor.
///     [4, n, 3] -> [3 n, 3, 1]
std::vector<Expr> row_major_strides(std::span<const Expr> shape);

/// Whether the index contains a load, so that data determines which elements are read.
bool uses_load(std::span<const Expr> index);

/// The axes that occur in the expressions. Loads are not followed.
std::set<uint32_t> axes_of(std::span<const Expr> exprs);

/// Whether axis `axis` occurs in the index. Conditions and loads are not followed.
///     y[i0] = @0 where @0 = x[i0 + 1] if (i1 >= 0)    axis 0: true, axis 1: false
bool index_uses(std::span<const Expr> index, size_t axis);

/// Whether two points that differ only along `axis` may read different elements, or the fill value for one of them:
/// through the index, the conditions, or a load in either.
bool moves_along(const TensorExpr& e, const Access& access, size_t axis);

/// Whether `node`, a node of `body` (the expression's body or epilogue), may have different values at two points that
/// differ only along `axis`.
bool moves_along(const TensorExpr& e, const ScalarBody& body, ScalarId node, size_t axis);

/// Whether every point behind the end of `axis` lies behind the end of the tensor.
///     x[i0, i1] of x: [h, w], extents [h, w]: both axes;  x[64*i0 + i1] with 64 points of i1: i0 alone
bool leaves_tensor_behind(const Program& program, const TensorExpr& e, const Access& access, size_t axis);

/// The offset in elements of an index into a tensor with these strides, one for each dimension of the index.
///     [i0, i1], [56, 1]  ->  56*i0 + i1
Expr strided_offset(std::span<const Expr> index, std::span<const Expr> strides);

/// The offset in elements of an index into a dense row-major tensor.
///     [8, 56], [i0, i1]  ->  56*i0 + i1
Expr row_major_offset(std::span<const Expr> shape, std::span<const Expr> index);

/// Returns the strides of an access or result in elements along each axis of the expression; nullopt where the offset
/// is not linear in the axis.
std::vector<std::optional<Expr>> axis_strides(const Program& program, const TensorExpr& e, ValueId value,
                                              std::span<const Expr> index);

/// Returns the stride between neighbours inside aligned blocks of `lanes` points along `axis`: 1 for channel-blocked
/// tensors, although their offset is not linear in the channel. nullopt if blocks have no common stride either.
std::optional<Expr> lane_stride(const Program& program, const TensorExpr& e, ValueId value, std::span<const Expr> index,
                                size_t axis, int lanes);

}  // namespace tilewright
