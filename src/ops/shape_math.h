#pragma once
// Decisions about integers that only the run knows, as arithmetic: where the answer is known it folds to a number.

#include <span>

#include "program/builder.h"

namespace tilewright {

Expr is_negative(Expr e);  ///< 1 or 0
Expr is_zero(Expr e);      ///< 1 or 0
/// The expression uses a number that is read from a tensor's contents when the model runs.
bool reads_data(Expr e);

/// Axes as positions in [0, rank). Constant ones are checked by the builder; others count from the end where negative.
std::vector<Expr> positive_axes(const Builder& b, std::vector<Expr> axes, size_t rank);
/// One value a dimension: values[n] for dimension axes[n] (not negative), `fallback` for the rest.
///     axes [2, 0], values [7, 5], fallback [1, 1, 1]    ->    [5, 1, 7]
Dims by_axis(std::span<const Expr> axes, std::span<const Expr> values, const Dims& fallback);

}  // namespace tilewright
