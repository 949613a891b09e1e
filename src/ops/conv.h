#pragma once
// Convolution as operators of other families need it.

#include "ops/lowering.h"

namespace tilewright {

/// x [n, g * ci, spatial...] and w [g * oi, ci, kernel...], as the node's attributes say   ->   [n, g * oi, out...], in
/// x's element type; outside x lies 0. Any element type.
ValueId convolution(NodeContext& c, ValueId x, ValueId w);

}  // namespace tilewright
