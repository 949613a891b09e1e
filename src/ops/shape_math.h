#pragma once
// Decisions about integers that only the run knows, as arithmetic: each gives 1 for true and 0 for false.

#include "index/expr.h"

namespace tilewright {

Expr is_negative(Expr e);
Expr is_zero(Expr e);

}  // namespace tilewright
