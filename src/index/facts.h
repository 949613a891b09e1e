#pragma once
// Proofs under assumptions, such as the validity conditions of an access.

#include <span>

#include "index/expr.h"

namespace tilewright {

/// True only if e >= 0 at every point of `ranges` at which every fact is >= 0; false when unknown.
///     i0 - 1 >= 0   given   i0 - 3 >= 0
///     (i0 - i1) // 2 <= 6   given   12 - i0 + i1 >= 0
/// Adds positive multiples of up to three facts, and replaces divisions, minima and maxima by their bounds.
bool prove_nonnegative(Expr e, const Ranges& ranges, std::span<const Expr> facts);

}  // namespace tilewright
