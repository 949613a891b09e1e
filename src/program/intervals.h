#pragma once
// Between which numbers the elements of a value lie, from those of its operands.

#include <functional>
#include <limits>

#include "program/program.h"

namespace tilewright {

/// Every element is a number between both, up to rounding. With an infinite end, elements may be infinite or NaN too.
struct RealInterval {
    double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
    bool is_bounded() const;
    /// The largest magnitude; infinite where the interval is not bounded.
    double magnitude() const;
    friend bool operator==(const RealInterval&, const RealInterval&) = default;
};

/// Of a constant's elements. Reads them all.
RealInterval interval_of(const Tensor& tensor);
/// Of what the expression computes, given its operands' (by value). A sum of products with a constant of `program`
/// takes the largest sum of magnitudes: of a convolution, per output channel.
///     y[o] = sum(c < 3) mul(w[o, c], x[c]), w = [[1, -2, 1], [0, 1, 0]], x in [-1, 1]   ->   y in [-4, 4]
RealInterval interval_of(const Program& program, const TensorExpr& e,
                         const std::function<RealInterval(ValueId)>& operand);

}  // namespace tilewright
