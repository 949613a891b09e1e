#pragma once
// Interval analysis: bounds of a value's elements, derived from the bounds of its operands.

#include <functional>
#include <limits>

#include "program/program.h"

namespace tilewright {

/// Every element lies in the interval, up to rounding. If an end is infinite, elements may also be infinite or NaN.
struct RealInterval {
    double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
    bool is_bounded() const;
    /// The largest magnitude; infinite for an unbounded interval.
    double magnitude() const;
    friend bool operator==(const RealInterval&, const RealInterval&) = default;
};

/// Bounds of a constant's elements. Reads all of them.
RealInterval interval_of(const Tensor& tensor);
/// Bounds of the expression's result, given the bounds of its operands (by value). For a sum of products with a
/// constant of `program` the result is the largest sum of magnitudes: for a convolution, per output channel.
///     y[o] = sum(c < 3) mul(w[o, c], x[c]), w = [[1, -2, 1], [0, 1, 0]], x in [-1, 1]   ->   y in [-4, 4]
RealInterval interval_of(const Program& program, const TensorExpr& e,
                         const std::function<RealInterval(ValueId)>& operand);

}  // namespace tilewright
