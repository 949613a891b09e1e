#pragma once
// Whether the indices of an expression stay inside what they index.

#include <optional>
#include <span>
#include <string>

#include "index/expr.h"
#include "program/program.h"

namespace tilewright {

/// A point at which `index` leaves [0, dimension) although every condition of `valid` is >= 0 there:
///     "i0 = 3, i1 = 0 gives -1"
/// Nothing when the index is proved to stay inside, or when no such point is found: a fault is reported only with a
/// point that shows it. Where extents are symbolic, it is reported if it happens for each of a range of values of the
/// symbols ("with $n = 2: i0 = 1 gives 2"), so that a relation between dimensions which only the model knows is not
/// taken for a fault; nor is what happens only where one of the `requirements` does not hold. Indices that depend on
/// loads or scalars can be anything and are left to the interpreter.
std::optional<std::string> find_outside(Expr index, Expr dimension, std::span<const Expr> valid,
                                        std::span<const Expr> extents, std::span<const Requirement> requirements = {});

}  // namespace tilewright
