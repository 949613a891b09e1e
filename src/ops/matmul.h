#pragma once
// Gemm for operators of other families.

#include "ops/lowering.h"

namespace tilewright {

/// alpha * A * B + beta * C of the node's inputs and attributes.
ValueId gemm(NodeContext& c);

}  // namespace tilewright
