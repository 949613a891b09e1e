#pragma once
// Functions of one 8-bit integer.

#include "program/program.h"

namespace tilewright {

/// Replaces what a body computes of one 8-bit integer and constants by a table of its 256 results, where that saves
/// many operations: activations between two quantisations.
///
///     u8(round(f32(x) * sigmoid(f32(x)) / 0.1)), x = u8(round(@0))   ->   u8(table{256 numbers}(x))
///
/// Entries are computed in double precision and rounded once.
Program tabulate_bytes(Program program);

}  // namespace tilewright
