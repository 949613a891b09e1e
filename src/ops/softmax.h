#pragma once
// Softmax as primitives, shared by several operators.

#include <optional>

#include "program/builder.h"

namespace tilewright {

/// exp(x - max(x)) / sum(exp(x - max(x))) along `axes`, with x's shape and the type `to` (none: x's). A row of
/// -infinity gives NaN. Intermediate values have the compute type of x.
ValueId softmax(Builder& b, ValueId x, const std::vector<int64_t>& axes, std::optional<DType> to = std::nullopt);

}  // namespace tilewright
