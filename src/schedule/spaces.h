#pragma once
// The spaces of a kernel's schedules.

#include <vector>

#include "schedule/construct/etir.h"
#include "schedule/scheduler.h"

namespace tilewright {

/// The default schedule of a kernel, whose stages have contiguous axes merged, and the spaces in which another one is
/// constructed; none where that is not possible or cannot gain.
struct Spaces {
    TileProgram initial;
    std::vector<construct::Problem> all;
};
Spaces spaces_of(Program stages, const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes, const Scheduling& how);

}  // namespace tilewright
