#pragma once
// Borders of a computed number around a tensor, in place of conditions where it is read.

#include <optional>

#include "program/program.h"

namespace tilewright {

struct Bordered {
    TensorExpr tensor;  ///< the tensor with its border
    Access read;        ///< of it, without conditions; its `value` is not set
};

/// What `e` reads by `read`, with the number that `fill` reads where the conditions of `read` do not hold.
///     sum(k) (x[i+k-1] when 0 <= i+k-1 < 56 else z[]) * w[k]
///  -> b[j] = 0 <= j-1 < 56 ? x[j-1] : z[]      sum(k) b[i+k] * w[k]
/// Returns nothing unless all sizes are known, the indices are linear, the conditions say that they are inside of the
/// tensor, and `fill` reads one number of the tensor's type.
std::optional<Bordered> bordered(const Program& program, const TensorExpr& e, const Access& read, const Access& fill);

}  // namespace tilewright
