#pragma once
// Averages over windows, shared by several operators.

#include "ops/lowering.h"

namespace tilewright {

/// AveragePool of `x` [n, c, spatial...] with the node's attributes, in x's type.
ValueId average_pool(NodeContext& c, ValueId x);
/// The mean over all spatial dimensions of `x` [n, c, spatial...], which are kept with extent 1.
ValueId global_average_pool(NodeContext& c, ValueId x);

}  // namespace tilewright
