#pragma once
// Limits on the size of expressions.
//
// Each transposition between two incompatible reshapes decomposes a number into new digits, and n <- n * n + n doubles
// the degree of a polynomial: a few dozen nodes of a model can create an expression of any size. Optional compositions
// (fusion, evaluation of shapes at compile time) stop at `is_long`. Mandatory ones stop at the limits of Expr itself,
// with the error of an overflow.

#include "index/expr.h"

namespace tilewright {

/// The length of an expression's text, in characters. Real models reach 160; the time of simplify and bounds grows
/// steeply with it.
inline constexpr size_t kLongExpr = 500;
inline bool is_long(Expr e) { return e.text().size() > kLongExpr; }

}  // namespace tilewright
