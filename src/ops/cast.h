#pragma once
// Casts that other operators end with.

#include "ops/lowering.h"

namespace tilewright {

/// x in one of the 8-bit or 4-bit floats; the node's attributes `saturate` and `round_mode` say how.
ValueId small_float_cast(NodeContext& c, ValueId x, DType to);

}  // namespace tilewright
