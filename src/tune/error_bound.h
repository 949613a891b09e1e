#pragma once
// Error bounds: the maximum difference of a correct kernel's result from the exact one, computed per element.

#include "tile/tile.h"

namespace tilewright {

/// A program with the outputs of `stages`, followed by one f64 bound for each. Interpreted with `exact` (f32 kept in
/// double), an element of an output is the exact result, and |result of a correct kernel - exact result| is at most its
/// bound. A bound of infinity or NaN: unknown. `stages` has no symbols.
///
/// The error model (u is half a unit in the last place of the type computed in: 2^-24 for f32; 2^-52 for f64, where the
/// reference rounds too; the error of operands is propagated through every operator):
///   each operation rounds once                                 u |result|
///   a transcendental is off by 8 units in the last place       16 u |result| (`ulp` in program/scalar_ops.def)
///   a sum of n terms in any order, with or without fma         min(n, 6 sqrt(n)) u (sum of |term|)
///   a product of n factors in any order                        ((1 + u)^n - 1) |product|, for each factor's own error
///   storing in type T                                          2 u_T |value|, and the smallest number of T
/// (n u is a strict bound, but above some 4000 terms it would hide a missing term. The other bound holds for
/// independent rounding errors of mean 0, as those of random numbers are, except for one element in 10^7 or more: N.
/// Higham and T. Mary, "A new approach to probabilistic rounding error analysis", 2019, with lambda = 6.) A
/// discontinuous operation (comparison, rounding, conversion to an integer, an index) is exact if the operands' errors
/// do not reach the discontinuity; otherwise its bound is the jump, or infinity.
///
/// `f16_sums`: sums of products of two operands of f16 may be in f16 for a step of kF16Step elements (tile/matrix.h).
/// Each of the 33 additions to a number there has an error of 2^-11 of it, or of 2^-25; where the magnitudes of all
/// terms add up to 65000 or more, the sum may overflow, and no bound is known.
Program with_error_bounds(const Program& stages, bool f16_sums = false);

}  // namespace tilewright
