#pragma once
// Merges neighbouring axes of a one-primitive program that are contiguous in memory.

#include <optional>

#include "program/program.h"

namespace tilewright {

/// Merges neighbouring axes that have a common stride in every access and in the result; tensors become
/// one-dimensional. Returns nullopt if nothing merges.
///     [8, 56, 56, 64] + [8, 56, 56, 64]   ->   one axis of 1605632
std::optional<Program> merge_contiguous_axes(const Program& program);

/// Orders the spatial axes as the result's dimensions, and merges neighbours that every tensor which they index has as
/// neighbouring dimensions. These become one dimension, so that the rows of a product are one axis. Nothing for several
/// primitives, or an opaque one.
///     y[h, w, o] = sum(c) x[h, w, c] * k[o, c], axes o, h, w   ->   y[p, o] = sum(c) x[p, c] * k[o, c], axes p, o
std::optional<Program> merge_dimensions(const Program& program);

}  // namespace tilewright
