#pragma once
// What a part of an expression's points touches: the sizes that schedules are cut by.

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// Of a dimension that only the run knows: 128, or what the dimensions it is made of give at 128 each. At least 1.
int64_t guessed_extent(Expr extent);

/// Bytes of the box an access touches when the axes have these extents and begin at 0.
int64_t box_bytes(const Program& stages, const Access& access, const std::vector<int64_t>& extents);

/// Whether another point along the axis is, or may be, another element.
bool uses_axis(const Access& access, size_t axis);

}  // namespace tilewright
