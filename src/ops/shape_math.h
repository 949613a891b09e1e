#pragma once
// Decisions about integers that only the run knows, as arithmetic: where the answer is known it folds to a number.

#include <span>

#include "program/builder.h"

namespace tilewright {

Expr is_negative(Expr e);  ///< 1 or 0
Expr is_zero(Expr e);      ///< 1 or 0
/// The expression uses a number that is read from a tensor's contents when the model runs.
bool reads_data(Expr e);

/// The number, kept where adding a dimension to it cannot overflow: past 2^31 it means "to the end".
constexpr int64_t kFar = INT32_MAX;
Expr within_reach(Expr bound);

/// Axes as positions in [0, rank): negative ones count from the end. Constant ones are checked at once, others when the
/// model runs; none may be given twice.
std::vector<Expr> positive_axes(Builder& b, std::vector<Expr> axes, size_t rank);
/// The number must not be 0; `what` it is, for the message.
void require_not_zero(Builder& b, Expr e, std::string_view what);
/// One value a dimension: values[n] for dimension axes[n] (not negative), `fallback` for the rest.
///     axes [2, 0], values [7, 5], fallback [1, 1, 1]    ->    [5, 1, 7]
Dims by_axis(std::span<const Expr> axes, std::span<const Expr> values, const Dims& fallback);

}  // namespace tilewright
