#pragma once
// Factors of products that inner reduction loops repeat.

#include <optional>
#include <span>

#include "tile/tile.h"

namespace tilewright {

/// A factor mul(number, scale) of a sum of products, and the innermost loops along which the scale does not move: the
/// products of these loops are summed without it.
///     y[n] = sum(b, i) x[b, i] * (w[b, i, n] * s[b, n])   ->   y[n] = sum(b) s[b, n] * (sum(i) x[b, i] * w[b, i, n])
struct HoistedScale {
    size_t factor = 0;       ///< of the contraction
    ScalarId number, scale;  ///< nodes of the body
    size_t first_loop = 0;   ///< position of the first of these loops, which is not the outermost
};

/// `loops`: the reduction axes, outermost first; the micro-kernel unrolls none along which the scale moves. nullopt:
/// there is none.
std::optional<HoistedScale> hoisted_scale(const TensorExpr& e, const Micro& micro, std::span<const size_t> loops);

}  // namespace tilewright
