#pragma once
// A long sum of few results as two kernels: parts of it side by side, then their sum. (Split-K; for an attention with
// few rows, flash decoding. The third of the places where a softmax's columns may be cut: on the grid.)
//
//     c[m,n] = sum_k a[m,k] * b[k,n]        c'[j,m,n] = sum_k a[m, C*j + k] * b[C*j + k, n]     k < C
//                                           c[m,n] = sum_j c'[j,m,n]
//
// Both are ordinary tensor expressions, so that everything that schedules, checks and runs kernels does the rest: j is
// one more axis, along which tasks lie.
//
// Softmax. What a maximum scales (tile/online.h) is computed with the maximum of its part, and brought to that of the
// whole row where the parts are added:
//
//     r[m] = max_n c[m,n]                   r'[j,m] = max_n c[m, C*j + n]         r[m] = max_j r'[j,m]
//     s[m] = sum_n exp(c[m,n] - r[m])       s'[j,m] = sum_n exp(c[m, C*j + n] - r'[j,m])
//                                           s[m] = sum_j s'[j,m] * exp(r'[j,m] - r[m])
//
// with the two guards of online maxima: the same infinity twice is a factor of 1, and a part whose maximum is -infinity
// in a row whose maximum is not adds nothing, whatever exp(-inf - -inf) made of it. Rows that are masked altogether,
// NaN and infinities then come out as in the whole row.

#include "schedule/chain/chain.h"

namespace tilewright::chain {

/// Two kernels; what the second reads of the first has the same name in both, as do the inputs and outputs of the
/// original.
struct SplitSum {
    Program partial, merge;
    int64_t parts = 1;
};

/// Cuts the longest sum of the last stage that sums, by the smallest divisor of its extent that is at least `parts`.
/// Nothing where the extent is open or has no such divisor up to 4 * `parts`, or where a part cannot be computed by
/// itself: a mean that its own row's terms need (a LayerNorm), a result along the axis that is given or read across
/// parts.
std::optional<SplitSum> split_sum(const Program& stages, int64_t parts);

}  // namespace tilewright::chain
