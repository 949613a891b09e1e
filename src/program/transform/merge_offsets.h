#pragma once
// Constants that are added to the sum of a product of bytes.

#include "program/program.h"

namespace tilewright {

/// The correction of a zero point and a bias in 32 bits become one constant, where the result is converted to a float:
///
///     f32((i - c[n]) + b[n])        ->   f32(i + (b - c)[n])             i: a sum of integers
///     f32(i32(r - c[n]) + b[n])     ->   r + f32(b - c)[n]               r: a sum of bytes times integers, in floats
///
/// The second form is exact while the result has 24 bits, and rounded once else, as the conversion would. `r` is known
/// to be integers of at most 24 bits: sums of a depthwise convolution as integer_products() makes them.
Program merge_offsets(Program program);

}  // namespace tilewright
