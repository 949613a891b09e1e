#pragma once
// Element types of tensors between primitives.

#include <set>

#include "program/program.h"

namespace tilewright {

/// Computed tensors of the given types, of 16 bits, become f32, and so do constants; the program's inputs and outputs
/// stay. Arithmetic is f32 in any case: what goes is the rounding of each stored number, and its conversion wherever it
/// is read, in the innermost loop of a product for both factors.
///
///     c: f16[8, 8] = sum(k) a b;  y: f16[8, 8] = relu(c)   ->   c: f32[8, 8] = sum(k) a b;  y: f16[8, 8] = relu(c)
///
/// Large weights that a product reads for few rows, or for an unknown number, stay narrow: it takes the time of reading
/// them. So does what an opaque operator or control flow reads or makes.
Program widen_storage(Program program, const std::set<DType>& types);

}  // namespace tilewright
