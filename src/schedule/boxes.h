#pragma once
// The memory footprint of a box of an expression's points. Sizes of tiles and tasks are chosen by it.

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// The extent that tiles of a kernel are chosen for. It is assumed_extent, but at least kAssumedExtent where the extent
/// is unknown at compile time and none of its names is in `stages.assumed`: too small a tile costs more than one with a
/// tail.
int64_t guessed_extent(const Program& stages, Expr extent);

/// Bytes of the box that an access touches when the axes have these extents and begin at 0.
int64_t box_bytes(const Program& stages, const Access& access, const std::vector<int64_t>& extents);

}  // namespace tilewright
