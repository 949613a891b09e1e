#pragma once
// Numbers that an expression rounds and saturates to 8 bits.

#include <optional>

#include "program/scalar.h"

namespace tilewright {

/// U8 or I8.
inline bool is_byte(DType t) { return t == DType::U8 || t == DType::I8; }

/// round(real) + zero, saturated to an 8-bit type; `zero`, a node, may be missing.
struct RoundedByte {
    ScalarId real;
    std::optional<ScalarId> zero;
};

/// Returns nothing if the node is anything else.
///     u8(add(round(x), 127))   ->   real x, zero 127
std::optional<RoundedByte> rounded_byte(const ScalarBody& body, ScalarId node);

}  // namespace tilewright
