#pragma once
// Checks that the indices of an expression stay in bounds.

#include <optional>
#include <span>
#include <string>

#include "index/expr.h"
#include "program/program.h"

namespace tilewright {

/// A point at which `index` leaves [0, dimension) although every condition of `valid` is >= 0 there:
///     "i0 = 3, i1 = 0 gives -1"
/// None if the index is proved in bounds, or if no such point is found: a fault is reported only with a counterexample.
/// With symbolic extents, a fault is reported if it occurs for each of a range of values of the symbols ("with $n = 2:
/// i0 = 1 gives 2"), so that a relation between dimensions which the program does not state is not reported. A
/// fault that occurs only where one of the `requirements` is violated is not reported either. Indices that depend on
/// loads or scalars are unbounded at compile time and are checked by the interpreter.
std::optional<std::string> find_outside(Expr index, Expr dimension, std::span<const Expr> valid,
                                        std::span<const Expr> extents, std::span<const Requirement> requirements = {});

}  // namespace tilewright
