#pragma once
// Quantisations of what was dequantised alike.

#include "program/program.h"

namespace tilewright {

/// Makes quantisations of numbers that had been dequantised with the same scale and zero point, whatever copies lie
/// between, copies of the integers: round((q - zero) * scale / scale) is q - zero where the scale is neither tiny nor
/// huge. Behind a maximum, the integers' maximum. Returns their number. What is no longer read stays in the program.
///
///     y = u8(round(max(i) x[i] / 0.5) + 3), x[i] = f32(i32(k[i]) - 3) * 0.5   ->   y = max(i) k[i]
size_t copy_requantised(Program& program);

}  // namespace tilewright
