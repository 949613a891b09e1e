#pragma once
// The memory that a part of an expression's points touches: the sizes that tiles and tasks are chosen by.

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// The extent that tiles are chosen for: assumed_extent, but at least kAssumedExtent where it is unknown at compile
/// time, since too small a tile costs more than one with a tail.
int64_t guessed_extent(Expr extent);

/// Bytes of the box an access touches when the axes have these extents and begin at 0.
int64_t box_bytes(const Program& stages, const Access& access, const std::vector<int64_t>& extents);

}  // namespace tilewright
