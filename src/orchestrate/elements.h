#pragma once
// The number of elements of a tensor if it is known.

#include <optional>
#include <span>

#include "index/expr.h"

namespace tilewright {

/// The number of elements, at least 1. Nothing where a dimension is dynamic or 0.
inline std::optional<int64_t> known_elements(std::span<const Expr> shape) {
    const Expr n = product(shape);
    return n.is_constant() && n.constant() > 0 ? std::optional(n.constant()) : std::nullopt;
}

}  // namespace tilewright
