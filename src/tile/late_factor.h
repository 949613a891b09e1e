#pragma once
// Constant factors of values, which their readers apply at no cost: one multiplication for each row of scores in place
// of one for each score.
//
//     c = sum(i3) mul(q, k) then mul(acc, 0.125)    r = max(i3) c          p = exp(sub(c, r))
//  -> c = sum(i3) mul(q, k)                         r = 0.125 max(i3) c    p = exp2((0.125 log2 e) c - (log2 e) r)
//
// The maximum stays the same number: rounding 0.125 x never changes the order of two x.

#include <optional>

#include "program/program.h"

namespace tilewright {

struct LateFactor {
    double factor = 1;    ///< positive and finite
    ScalarBody epilogue;  ///< without it; empty: the sum as it is
};

/// Returns the factor of everything that an epilogue of f32 gives: of acc * f, of acc / (1 / f), and of choices between
/// these and 0 or an infinity (masks). Nothing where there is none.
std::optional<LateFactor> late_factor(const ScalarBody& epilogue);

/// Whether the expression reads the value, and only where a factor costs nothing: as what it takes the maximum of, or
/// as x of exp(x - y).
bool takes_factor(const TensorExpr& e, ValueId value);

}  // namespace tilewright
