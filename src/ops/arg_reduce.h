#pragma once
// ArgMax and ArgMin as primitives.

#include "program/builder.h"

namespace tilewright {

/// Position (I64) of the first (or last) largest or smallest element along `axis`, whose extent becomes 1. A NaN counts
/// as the extremum.
ValueId first_extremum(Builder& b, ValueId x, int64_t axis, bool largest, bool last);

}  // namespace tilewright
