#pragma once
// Where the threads of a block must meet: in front of a statement that touches bytes which another one has touched
// since the last barrier, one of the two writing them.

#include <set>

#include "tile/walk.h"

namespace tilewright::cuda {

/// Paths of the statements (and pipelined loops) that need a barrier in front. A loop's step follows the one before it.
/// Buffers that lie elsewhere are every thread's own, but for those `in_memory`, which the block shares as well.
std::set<TreePath> barriers(const TileProgram& program, const BufferPlan& plan,
                            const std::set<ValueId>& in_memory = {});

}  // namespace tilewright::cuda
