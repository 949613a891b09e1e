#pragma once
// Averages over windows, for every operator that has one inside.

#include "ops/lowering.h"

namespace tilewright {

/// AveragePool of `x` [n, c, spatial...] by the node's attributes, in x's type.
ValueId average_pool(NodeContext& c, ValueId x);
/// The mean over all spatial dimensions of `x` [n, c, spatial...], which stay as 1.
ValueId global_average_pool(NodeContext& c, ValueId x);

}  // namespace tilewright
