#pragma once
// Checks that rewritten programs need when they run: what a rewrite is right for, not the operator as written.

#include "program/program.h"

namespace tilewright {

/// The largest magnitude that a guarded value may have. Winograd's sums over tiles of such values stay finite, whatever
/// the weights: tiles grow them 100 times, and products with weights of 1e6 over 1e6 channels stay below 1e29 then.
constexpr double kMostGuarded = 1048576;  // 2^20

/// Winograd's convolutions combine a tile's inputs for all of its outputs: an infinity or NaN reaches outputs whose
/// window it is not in, and a large number leaves its rounding errors there. For every value that their transforms read
/// and that a bound does not show to be small, the program gets
///
///     worst = max over all elements of (|x| <= kMostGuarded ? 0 : 1)       and requires 0 >= worst, else Fallback.
///
/// The bound: of values that are products, sums and activations of checked ones, from the weights' magnitudes.
/// `original`: the program before it was rewritten, where values have the same names.
Program guard_winograd(Program program, const Program& original);

}  // namespace tilewright
