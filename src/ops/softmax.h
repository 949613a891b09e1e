#pragma once
// Softmax as primitives, for every operator that has one inside.

#include "program/builder.h"

namespace tilewright {

/// exp(x - max(x)) / sum(exp(x - max(x))) along `axes`; the type and shape are x's. A row of -infinity gives NaN.
/// Between the primitives the numbers have the type that x computes in.
ValueId softmax(Builder& b, ValueId x, const std::vector<int64_t>& axes);

}  // namespace tilewright
