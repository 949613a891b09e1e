#pragma once
// Axes and symbols for the tests of index expressions.

#include "index/expr.h"

namespace tilewright {

inline const Expr i0 = axis(0), i1 = axis(1), i2 = axis(2), n = symbol("n"), m = symbol("m");

}  // namespace tilewright
