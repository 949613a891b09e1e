#pragma once
// What is assumed of sizes that are unknown at compile time. Every heuristic and estimate takes them from here, so that
// all of them plan for the same problem.

#include "program/program.h"

namespace tilewright {

/// The value of a symbol or scalar that has none.
inline constexpr int64_t kAssumedExtent = 128;

/// `e` where every name that `known` does not bind has the value kAssumedExtent.
///     $seq            ->  128
///     3*$h // 32 + 1  ->  13
int64_t assumed_value(Expr e, const Bindings& known = {});

/// The same of an extent: at least 1.
int64_t assumed_extent(Expr e, const Bindings& known = {});

/// Points of an iteration space, or elements of a shape.
double assumed_points(std::span<const Expr> extents, const Bindings& known = {});

}  // namespace tilewright
