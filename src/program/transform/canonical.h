#pragma once
// Canonical forms for expressions that exporters spell in several ways, so that kernels do not depend on the spelling.
//
// The laws hold for real numbers and change only rounding: products are reordered and their constants combined,
// divisions by constants become products. Sums keep their order (in a cancellation it decides what remains). Programs
// that round to integers are left unchanged, because there the last bit matters.

#include "program/program.h"

namespace tilewright {

/// Moves constant factors of a product's operands behind the product, combined into one (see below):
///     q[i, k] = mul(x[i, k], 0.125);  s = sum(k) q[i, k] k[j, k]   ->   s = mul(sum(k) x[i, k] k[j, k], 0.125)
/// Only from elementwise expressions that no other primitive reads, and if no operand is a constant (which would absorb
/// the factor).
Program scales_behind_products(const Program& program);

/// Bodies and epilogues in one form, of programs before or after fusion:
///     div(mul(0.5, @1), mul(@0, 4))      ->  div(mul(@1, 0.125), @0)           factors in order, one constant
///     pow(@0, 0.5)                       ->  sqrt(@0)
///     add(mul(@0, @1), sub(@2, mul(@3, @1)))  ->  add(mul(@1, sub(@0, @3)), @2)     x f + (b - m f)
///     tanh(add(max(@0, 0), log1p(exp(neg(abs(@0))))))  ->  n / (n + 2), n = e (e + 2), e = exp(@0)   Mish
///     s = sqrt(v); y = div(x, s)         ->  s = div(1, sqrt(v)); y = mul(x, s)    one division per row, not per
///     element
/// Operands of additions and of products are in the order of accesses, and those in the order of ValueIds.
Program canonical_bodies(Program program);

}  // namespace tilewright
