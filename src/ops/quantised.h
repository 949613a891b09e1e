#pragma once
// Quantised numbers, shared by the quantised operators: q represents (q - zero point) * scale.

#include <optional>

#include "ops/lowering.h"
#include "ops/scalar_math.h"

namespace tilewright {

/// saturate(round half to even(x) + zero), for an integer type of up to 32 bits.
ScalarId quantised(Sx x, std::optional<Sx> zero, DType to);

/// x - zero in 32 bits; `zero` is optional and broadcasts to x.
ValueId centred(Builder& b, ValueId x, std::optional<ValueId> zero);

/// u8 values, their f32 scale and u8 zero point.
struct DynamicallyQuantised {
    ValueId values, scale, zero;
};
/// DynamicQuantizeLinear: maps the range of x (f32), extended to contain 0, to 0..255.
DynamicallyQuantised dynamically_quantised(Builder& b, ValueId x);

/// Quantised weights [k, n] with one scale (f32) and zero point (of the weights' type), or one per column.
struct QuantisedMatrix {
    ValueId values, scale;
    std::optional<ValueId> zero;
};
/// x, whose integers are centred and represent numbers times `x_scale`, times the weights: f32.
ValueId scaled_product(Builder& b, ValueId x, ValueId x_scale, const QuantisedMatrix& weights);
/// The product of x (f32), quantised as DynamicQuantizeLinear does, and the weights.
ValueId dynamic_product(Builder& b, ValueId x, const QuantisedMatrix& weights);

/// QAttention's products of x (input 0; scale and zero point at 3 and 6) and weights (1; 4 and 7), with the bias (2),
/// f32.
ValueId quantised_projection(NodeContext& c);

}  // namespace tilewright
