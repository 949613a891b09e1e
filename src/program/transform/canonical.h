#pragma once
// One form for what exporters spell in several ways, so that kernels do not depend on it.
//
// The laws are those of real numbers and change rounding alone: products are reordered and their constants multiplied,
// divisions by constants become products. Sums keep their order (where terms cancel it decides what is left), and in
// programs that round to integers nothing is touched: there the last bit decides.

#include "program/program.h"

namespace tilewright {

/// Constant factors of a product's operands, behind the product; several become one there (see below):
///     q[i, k] = mul(x[i, k], 0.125);  s = sum(k) q[i, k] k[j, k]   ->   s = mul(sum(k) x[i, k] k[j, k], 0.125)
/// Only of maps that the product alone reads, and where no operand is a constant (which would take the factor).
Program scales_behind_products(const Program& program);

/// Bodies and epilogues in one form, of programs before or after fusion:
///     div(mul(0.5, @1), mul(@0, 4))      ->  div(mul(@1, 0.125), @0)           factors in order, one constant
///     pow(@0, 0.5)                       ->  sqrt(@0)
///     add(mul(@0, @1), sub(@2, mul(@3, @1)))  ->  add(mul(@1, sub(@0, @3)), @2)     x f + (b - m f)
///     tanh(add(max(@0, 0), log1p(exp(neg(abs(@0))))))  ->  n / (n + 2), n = e (e + 2), e = exp(@0)   Mish
///     s = sqrt(v); y = div(x, s)         ->  s = div(1, sqrt(v)); y = mul(x, s)    one division a row, not an element
/// Operands of additions and of products are in the order of accesses, and those in the order of ValueIds.
Program canonical_bodies(Program program);

}  // namespace tilewright
