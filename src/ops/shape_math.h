#pragma once
// Decisions about integers unknown at compile time, as arithmetic that folds to a constant if the operands are known.

#include <span>

#include "program/builder.h"

namespace tilewright {

Expr is_negative(Expr e);  ///< 1 or 0
Expr is_zero(Expr e);      ///< 1 or 0
/// Whether the expression uses a scalar read from a tensor's contents at run time.
bool reads_data(Expr e);

/// The number, clamped so that adding a dimension cannot overflow: values above 2^31 mean "to the end".
constexpr int64_t kFar = INT32_MAX;
Expr within_reach(Expr bound);

/// Axes as positions in [0, rank): negative ones count from the end. Constant axes are checked at once, others at run
/// time; duplicates are rejected.
std::vector<Expr> positive_axes(Builder& b, std::vector<Expr> axes, size_t rank);
/// Requires that the number is not 0; `what` describes it in the message.
void require_not_zero(Builder& b, Expr e, std::string_view what);
/// One value per dimension: values[n] for dimension axes[n] (not negative), `fallback` for the others.
///     axes [2, 0], values [7, 5], fallback [1, 1, 1]    ->    [5, 1, 7]
Dims by_axis(std::span<const Expr> axes, std::span<const Expr> values, const Dims& fallback);

}  // namespace tilewright
