#pragma once
// Where the largest elements of windows stand (MaxPool's second output), and the way back (MaxUnpool).

#include <vector>

#include "ops/window.h"

namespace tilewright {

/// Position of the first element of each window of input 0 that equals `largest` [n, c, y...], counted through the
/// whole input [n, c, h, w, d]: row-major, or within an image with its first spatial dimension fastest
/// (`column_major`). I64.
ValueId max_positions(NodeContext& c, ValueId largest, const std::vector<WindowAxis>& windows, bool column_major);

/// The rule for MaxUnpool.
void max_unpool(NodeContext& c);

}  // namespace tilewright
