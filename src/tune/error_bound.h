#pragma once
// How far a kernel's result may lie from the exact one: computed for each element, beside the element.

#include "tile/tile.h"

namespace tilewright {

/// A program whose outputs are those of `stages`, followed by one f64 bound for each: interpreted with `exact` (f32
/// kept in double), an element of an output is what exact arithmetic gives, and |what a correct kernel gives - that| is
/// at most its bound. Infinity or NaN: nothing can be said of the element. `stages` has no symbols.
///
/// What a correct kernel may do, and what it adds (u is half a unit in the last place of the type computed in: 2^-24
/// for f32; 2^-52 for f64, where the reference rounds too; the error of operands is carried through every operator):
///   each operation rounds once                                 u |result|
///   a transcendental is off by 8 units in the last place       16 u |result|
///   a sum of n terms in any order, with or without fma         min(n, 6 sqrt(n)) u (sum of |term|)
///   a product of n factors in any order                        ((1 + u)^n - 1) |product|, for each factor's own error
///   too storing in type T                                          2 u_T |value|, and the smallest number of T
/// (n u holds always, but from some 4000 terms on it would hide that one of them is missing. The other holds for
/// rounding errors that are independent and of mean 0, as those of random numbers are, but for one element in 10^7 or
/// more: N. Higham and T. Mary, "A new approach to probabilistic rounding error analysis", 2019, with lambda = 6.) What
/// is not continuous (comparison, rounding, conversion to an integer, an index) is exact where the operands' errors
/// cannot reach the place where it jumps; else its bound is the jump, or infinity.
Program with_error_bounds(const Program& stages);

}  // namespace tilewright
