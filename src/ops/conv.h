#pragma once
// Convolution for operators of other families.

#include "ops/lowering.h"

namespace tilewright {

/// x [n, g * ci, spatial...] and w [g * oi, ci, kernel...], with the node's attributes   ->   [n, g * oi, out...], in
/// x's element type; padded with 0. Any element type.
ValueId convolution(NodeContext& c, ValueId x, ValueId w);
/// The same with x's element type floating-point, weights from input 1 and the bias, if there is one, from input 2.
ValueId biased_convolution(NodeContext& c, ValueId x);

/// Data in channels last, [n, spatial..., c], as [n, c, spatial...]. Throws ModelError with the node unless it has 3
/// dimensions or more.
ValueId channels_first(NodeContext& c, ValueId x);
/// Its inverse.
ValueId channels_last(NodeContext& c, ValueId y);

}  // namespace tilewright
