#pragma once
// Neighbouring axes of a program of one primitive that memory walks as one.

#include <optional>

#include "program/program.h"

namespace tilewright {

/// Neighbouring axes that every access and the result walk with one stride become one axis; tensors become
/// one-dimensional. nullopt where nothing merges.
///     [8, 56, 56, 64] + [8, 56, 56, 64]   ->   one axis of 1605632
std::optional<Program> merge_contiguous_axes(const Program& program);

}  // namespace tilewright
