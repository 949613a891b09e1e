#pragma once
// The range of a softmax's sum.

#include "program/program.h"

namespace tilewright {

/// Whether every element of the value is a sum of exp(x - r), where r is the maximum of the same x:
///
///     r[i] = max(n) x[i, n]    p[i, n] = exp(sub(x[i, n], r[i]))    s[i] = sum(n) p[i, n]
///
/// One of the terms is then exp(0) and the others are at most that, so s is between 1 and the number of terms, up to
/// rounding, or NaN. (Where all x are the same infinity, and where one of them is NaN.) Maxima that are found online do
/// not change that: the term of the last new maximum is never corrected.
bool is_softmax_sum(const Program& stages, ValueId value);

}  // namespace tilewright
