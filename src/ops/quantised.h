#pragma once
// Quantised numbers, for every operator that takes or gives them: q stands for (q - zero point) * scale.

#include <optional>

#include "ops/lowering.h"
#include "ops/scalar_math.h"

namespace tilewright {

/// saturate(round half to even(x) + zero), for an integer type of up to 32 bits.
ScalarId quantised(Sx x, std::optional<Sx> zero, DType to);

/// x - zero in 32 bits; `zero`, which may be missing, broadcasts to x.
ValueId centred(NodeContext& c, ValueId x, std::optional<ValueId> zero);

/// u8 values, their f32 scale and u8 zero point.
struct DynamicallyQuantised {
    ValueId values, scale, zero;
};
/// DynamicQuantizeLinear: the range of x (f32) with 0 in it becomes 0 to 255.
DynamicallyQuantised dynamically_quantised(NodeContext& c, ValueId x);

}  // namespace tilewright
