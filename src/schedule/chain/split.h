#pragma once
// Split-K: a long reduction with few results becomes two kernels. The first computes parts of it in parallel, the merge
// kernel adds them. For an attention with few rows this is flash decoding: the columns of a softmax are cut on the
// grid.
//
//     c[m,n] = sum_k a[m,k] * b[k,n]        c'[j,m,n] = sum_k a[m, C*j + k] * b[C*j + k, n]     k < C
//                                           c[m,n] = sum_j c'[j,m,n]
//
// Both are ordinary tensor expressions, so schedulers, verifiers and executors need no special case: j is one more
// axis, which tasks split.
//
// Softmax: a value that a maximum scales (tile/online.h) is computed with the maximum of its part. The merge kernel
// rescales it to the maximum of the whole row:
//
//     r[m] = max_n c[m,n]                   r'[j,m] = max_n c[m, C*j + n]         r[m] = max_j r'[j,m]
//     s[m] = sum_n exp(c[m,n] - r[m])       s'[j,m] = sum_n exp(c[m, C*j + n] - r'[j,m])
//                                           s[m] = sum_j s'[j,m] * exp(r'[j,m] - r[m])
//
// with the two guards of online maxima. Two equal infinities give a factor of 1. A part whose maximum is -infinity adds
// nothing to a row whose maximum is not, whatever exp(-inf - -inf) was. Completely masked rows, NaN and infinities
// therefore give the same results as an unsplit row.

#include "schedule/chain/chain.h"

namespace tilewright::chain {

/// The two kernels. A tensor that the merge kernel reads from the first has the same name in both, as have the inputs
/// and outputs of the original.
struct SplitSum {
    Program partial, merge;
    int64_t parts = 1;
};

/// Splits the longest reduction of the last stage that reduces, by the smallest divisor of its extent that is at least
/// `parts`. Nothing where the extent is dynamic or has no such divisor up to 4 * `parts`, or where a part depends on
/// other parts: a mean that terms of the same row need (a LayerNorm), or a result along the axis that is an output or
/// read across parts.
std::optional<SplitSum> split_sum(const Program& stages, int64_t parts);

}  // namespace tilewright::chain
