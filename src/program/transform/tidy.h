#pragma once
// Small simplifications of one tensor expression, used by all transformations.

#include <functional>

#include "program/program.h"

namespace tilewright {

/// The same expression with every index expression replaced by f(it): of accesses, conditions, Index nodes, and of
/// output_index (an empty one stays empty).
TensorExpr map_indices(const TensorExpr& expr, const std::function<Expr(Expr)>& f);

/// The same function simplified by the ranges of its axes:
///     a[(64*i0 + i1) // 64]            -> a[i0]                       for i1 < 64
///     a[i0] when i0 >= 0 else 0        -> a[i0]
///     a[i0] when i0 - 9 >= 0 else 0    -> the constant 0              for i0 < 9
///     select(ge(i0, 0), x, y)          -> x
///     mul(@0, @1), @0 = a[i0], @1 = a[i0]  -> mul(@0, @0)             equal accesses merge, unused ones are dropped
TensorExpr tidy(const TensorExpr& expr);

}  // namespace tilewright
