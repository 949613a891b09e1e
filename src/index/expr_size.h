#pragma once
// How far expressions may grow.
//
// Each transposition between two reshapes that do not fit each other writes a number's digits anew, and n <- n * n + n
// doubles a polynomial's degree: a few dozen nodes of a model can make an expression of any size. Whoever composes
// expressions by choice (fusion, evaluation of shapes at compile time) stops at `is_long`. The rest stops at the limits
// of Expr itself, with the error of an overflow.

#include "index/expr.h"

namespace tilewright {

/// Characters of an expression's text. Real models reach 160; what looks into an expression (simplify, bounds) takes
/// time that grows steeply with it.
inline constexpr size_t kLongExpr = 500;
inline bool is_long(Expr e) { return e.text().size() > kLongExpr; }

}  // namespace tilewright
