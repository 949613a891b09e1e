#pragma once
// Positions of the window maxima (MaxPool's second output), and their inverse (MaxUnpool).

#include <vector>

#include "ops/window.h"

namespace tilewright {

/// Position of the first element of each window of input 0 that equals `largest` [n, c, y...], counted through the
/// whole input [n, c, h, w, d]: row-major, or within an image with its first spatial dimension fastest
/// (`column_major`). I64.
ValueId max_positions(NodeContext& c, ValueId largest, const std::vector<WindowAxis>& windows, bool column_major);

/// The lowering of MaxUnpool.
void max_unpool(NodeContext& c);

}  // namespace tilewright
