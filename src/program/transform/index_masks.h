#pragma once
// Constant triangles as comparisons of indices.

#include "program/program.h"

namespace tilewright {

/// Reads of a constant that has one number on and below a diagonal and another one above it become a comparison of the
/// two indices. Every element of the constant is compared, so the values stay equal:
///
///     where(@0, s, -inf)   with @0 = triangle[0, 0, i2, i3]   ->   where(i2 - i3 >= 0, s, -inf)
///     add(s, @0)           with @0 = bias[i2, i3]             ->   add(s, where(i2 - i3 >= 0, 0, -inf))
///
/// Triangles of booleans, and of real numbers of which one masks scores (masks.h). Masked steps of a causal
/// attention are then left out (tile/live_steps.h), and no mask is read.
Program index_masks(Program program);

}  // namespace tilewright
