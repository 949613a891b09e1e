#pragma once
// Casts shared by several operators.

#include "ops/lowering.h"

namespace tilewright {

/// Converts x to an 8-bit or 4-bit float, according to the node's attributes `saturate` and `round_mode`.
ValueId small_float_cast(NodeContext& c, ValueId x, DType to);

}  // namespace tilewright
