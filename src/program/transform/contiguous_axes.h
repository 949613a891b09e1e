#pragma once
// Merges neighbouring axes of a one-primitive program that are contiguous in memory.

#include <optional>

#include "program/program.h"

namespace tilewright {

/// Merges neighbouring axes that have a common stride in every access and in the result; tensors become
/// one-dimensional. Returns nullopt if nothing merges.
///     [8, 56, 56, 64] + [8, 56, 56, 64]   ->   one axis of 1605632
std::optional<Program> merge_contiguous_axes(const Program& program);

}  // namespace tilewright
