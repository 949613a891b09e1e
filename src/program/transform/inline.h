#pragma once
// Fusion of two tensor expressions into one.
//
// Rounding is preserved: if the intermediate value is stored as f16 or bf16, the fused body casts to that type, so it
// computes the same values. Values of 8 bits and fewer are not fused away, except Bool, I8 and U8.

#include <optional>

#include "program/program.h"

namespace tilewright {

/// Substitutes `producer`, which has no reduction and computes `made`, into access `access` of `consumer`:
///
///     p[i0] = exp(a[i0]);   c[i0, i1] = mul(p[i1], b[i0])      ->  c[i0, i1] = mul(exp(a[i1]), b[i0])
///     p[i0] = add(a[i0], 1);  c[i0] = p[i0 - 2] when i0 - 2 >= 0 else 7
///         ->  c[i0] = select(ge(index(i0 - 2), 0), add(a[i0 - 2] when i0 - 2 >= 0 else 0, 1), 7)
///
/// No select is emitted if the producer yields the fill for suitable fills of its own reads: relu(0) is 0. Returns none
/// if inlining is impossible: the producer has a reduction; its value is read by a load() and its body is not an index
/// expression; it uses Index where the consumer gathers; the value's type cannot be kept in a register; or an index
/// would become too long (expr_size.h). `made` gives the type and, where the producer has an output_index, the shape.
std::optional<TensorExpr> inline_producer(const TensorExpr& consumer, size_t access, const TensorExpr& producer,
                                          const Value& made);

/// Makes `consumer`, which has no reduction, the epilogue of `producer`, which has one and computes `made`. The result
/// has the consumer's spatial axes, then the producer's reduction axes, and the consumer's output:
///
///     p[i0, i1] = sum(i2 < 64) mul(a[i0, i2], b[i2, i1]);   c[i0, i1] = relu(add(p[i1, i0], d[i1]))
///         ->  c[i0, i1] = sum(i2 < 64) mul(a[i1, i2], b[i2, i0]) then relu(add(acc, d[i1]))
///
/// Access `access` must be the consumer's only read of the value, without conditions, and must reach each element at
/// most once: through a bijection, or one axis per dimension. Otherwise returns none.
std::optional<TensorExpr> fuse_epilogue(const TensorExpr& producer, const TensorExpr& consumer, size_t access,
                                        const Value& made);

}  // namespace tilewright
