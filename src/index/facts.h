#pragma once
// Proofs under assumptions: what holds where the conditions of an access hold.

#include <span>

#include "index/expr.h"

namespace tilewright {

/// True only if e >= 0 at every point of `ranges` at which every fact is >= 0; false when not known.
///     i0 - 1 >= 0   given   i0 - 3 >= 0
///     (i0 - i1) // 2 <= 6   given   12 - i0 + i1 >= 0
/// Facts are combined by adding positive multiples of up to three of them; divisions, minima and maxima are opened.
bool prove_nonnegative(Expr e, const Ranges& ranges, std::span<const Expr> facts);

}  // namespace tilewright
