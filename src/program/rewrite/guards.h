#pragma once
// Run-time checks of the value ranges that a rewrite relies on and the original operator does not.

#include "program/program.h"

namespace tilewright {

/// The largest magnitude that a guarded value may have. Winograd's sums over tiles of such values stay finite for
/// practical weights: the transforms grow magnitudes by up to 100, and products with weights of 1e6 over 1e6 channels
/// stay below 1e29.
constexpr double kMostGuarded = 1048576;  // 2^20

/// A Winograd convolution combines all inputs of a tile for each of its outputs. An infinity or NaN therefore reaches
/// outputs whose window does not contain it, and a large number leaves its rounding errors there. For each value that
/// the input transforms read, and that interval analysis does not prove to be small, the program gets
///
///     worst = max over all elements of (|x| <= kMostGuarded ? 0 : 1)       and requires 0 >= worst, else Fallback.
///
/// Bounds of products, sums and activations of guarded values are derived from the magnitudes of the weights.
/// `original`: the program before rewriting, whose values have the same names.
Program guard_winograd(Program program, const Program& original);

/// The original program without those constants whose contents guard_winograd does not read.
Program read_by_guards(Program original);

}  // namespace tilewright
