#pragma once
// Assumed values of sizes that are unknown at compile time. Every heuristic and estimate uses them, so that all of them
// plan for the same problem.

#include "program/program.h"

namespace tilewright {

/// The assumed value of an unbound symbol or scalar.
inline constexpr int64_t kAssumedExtent = 128;

/// Returns `e` with kAssumedExtent for every name that `known` does not bind.
///     $seq            ->  128
///     3*$h // 32 + 1  ->  13
int64_t assumed_value(Expr e, const Bindings& known = {});

/// The same for an extent: at least 1.
int64_t assumed_extent(Expr e, const Bindings& known = {});

/// Returns the number of points of an iteration space, or of elements of a shape.
double assumed_points(std::span<const Expr> extents, const Bindings& known = {});

}  // namespace tilewright
