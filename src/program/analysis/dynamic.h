#pragma once
// Assumed values of sizes that are unknown at compile time. Every heuristic and estimate uses them, so that all of them
// plan for the same problem.

#include <map>
#include <optional>
#include <span>

#include "program/program.h"

namespace tilewright {

/// The assumed value of an unbound symbol or scalar. Program::assumed binds those for which a plan is made.
inline constexpr int64_t kAssumedExtent = 128;

/// Returns `e` with kAssumedExtent for every name that `known` does not bind.
///     $seq            ->  128
///     3*$h // 32 + 1  ->  13
int64_t assumed_value(Expr e, const Bindings& known = {});

/// The same for an extent: at least 1.
int64_t assumed_extent(Expr e, const Bindings& known = {});

/// Whether the sizes of all names of `e` are in Program::assumed: it is known for which value a plan is made.
bool sizes_assumed(const Program& stages, Expr e);

/// The largest value that the expression has while symbols are at least 0 and at most `at_most`; nothing if it is
/// unbounded, or mentions axes, loads or scalars.
///     min($n, 64) + 3*$seq, $seq <= 512  ->  1600
std::optional<int64_t> most_value(Expr e, const std::map<Var, int64_t>& at_most);

/// Returns the number of points of an iteration space, or of elements of a shape.
double assumed_points(std::span<const Expr> extents, const Bindings& known = {});

}  // namespace tilewright
