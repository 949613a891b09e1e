#pragma once
// Products of f32 on matrix instructions of bf16: operands as sums of bf16 numbers.

#include <map>
#include <string>

#include "cost/target.h"
#include "orchestrate/f32_products.h"
#include "program/program.h"
#include "program/sizes.h"

namespace tilewright {

/// What split_operands changed.
struct SplitOperands {
    size_t products = 0;   ///< whose operands are now terms
    size_t constants = 0;  ///< split at compile time
    size_t values = 0;     ///< computed tensors and inputs that are split
};

/// Rewrites products of f32 data with constant weights, where that is estimated to be faster, so that every operand is
/// a sum of `terms` bf16 numbers (2 or 3) and the product a sum over pairs of terms, those whose positions add up to
/// less than `terms`.
///
///     y[m,n] = sum(k < 768) x[m,k] * w[k,n]                                     three terms, six pairs
///  -> t[m, k // 32, i, k % 32] = term i of x[m,k], bf16;   v likewise of w, at compile time
///     y[m,n] = sum(k < 24, p < 6, j < 32) t[m, k, l(p), j] * v[k, r(p), j, n]   l: 0 0 1 1 2 0   r: 2 1 1 0 0 0
///
/// Terms of data are x rounded towards zero, the rest rounded to nearest, and what is left; the first term of a weight
/// is rounded to nearest. Three terms are exactly x, apart from parts below the smallest normal number, which count as
/// 0. The first terms of data that is not finite are 0 and the last is that number, so that products with it are what
/// they are in f32: an infinity times a weight is infinite. Products whose weights have an infinity, a NaN, or a number
/// that bf16 would round to infinity are not split: the last terms of both operands are in no pair.
///
/// Error of a sum of n products, relative to the sum of their magnitudes, u = 2^-24. Three terms: at most 2 u for the
/// dropped pairs and (6 n / s + s / 2 + 2) u for additions: an instruction adds s products, 16 to 32, in two sums from
/// 0; multiply-adds of f32 have n u. Only sums of at least kLeastTermSum products are split, so the bound is no larger.
/// Two terms: 2^-14 for the dropped pair and the rounded terms.
///
/// Dynamic sizes are estimated for the least of `ranges`, or 1: weights of few rows take the time of reading them, and
/// terms are larger.
///
/// Not for a target without tile registers of bf16, and not for products of `keep`.
Program split_operands(Program program, const Target& target, int terms, SplitOperands* report = nullptr,
                       const F32Products& keep = {}, const std::map<std::string, DimRange>& ranges = {});

/// The smallest n with 6 n / s + s / 2 + 4 <= n for s = 32; it holds for every smaller s.
constexpr int64_t kLeastTermSum = 25;

}  // namespace tilewright
