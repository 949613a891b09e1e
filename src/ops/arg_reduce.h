#pragma once
// Positions of extrema along an axis.

#include "program/builder.h"

namespace tilewright {

/// Position (I64) of the first (or last) largest or smallest element along `axis`, which becomes 1 long. A NaN counts
/// as the extremum.
ValueId first_extremum(Builder& b, ValueId x, int64_t axis, bool largest, bool last);

}  // namespace tilewright
