#pragma once
// How many elements a tensor has, where that is known.

#include <optional>
#include <span>

#include "index/expr.h"

namespace tilewright {

/// At least 1; nothing where a dimension is dynamic, or 0.
inline std::optional<int64_t> known_elements(std::span<const Expr> shape) {
    const Expr n = product(shape);
    return n.is_constant() && n.constant() > 0 ? std::optional(n.constant()) : std::nullopt;
}

}  // namespace tilewright
