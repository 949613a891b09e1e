#pragma once
// Scales of quantised numbers between a sum and the next quantisation.

#include "program/program.h"

namespace tilewright {

/// Where what is quantised is a linear function of integers or of a sum, the division by its scale becomes part of the
/// function's factors, which are constants:
///
///     u8(round(((i * 0.5 * s[n]) + b[n]) / 0.25))   ->   u8(round(i * (2 s)[n] + (4 b)[n]))
///     u8(round((g[n] * (i * 0.5)) / 0.25))          ->   u8(round(g[n] * (i * 2)))            g: any numbers
///
/// and a quantisation that is dequantised in the same body stays a float:
///
///     f32(i32(u8(round(x))) - 10)   ->   min(max(round(x), 0), 255) - 10
///
/// The argument of round() differs from the original's by a few units in its last place, as do two orders of the sum
/// that it scales, so a result is off by one quantum at most. What is quantised from other real numbers is divided as
/// before.
Program merge_scales(Program program);

}  // namespace tilewright
