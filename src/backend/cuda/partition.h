#pragma once
// How the threads of a block share the work of one statement.
//
// The spatial axes of the stage are cut into register tiles, one thread's work at a time. Threads go through the tiles
// along the vector axis first, so that neighbours in a warp meet neighbours in memory; a tile's virtual threads (Gensor
// §IV) are strips of it that lie as far apart as all threads together reach. Where there are fewer tiles than threads,
// or the vector axis is summed over, a group of threads shares a tile: each takes every group-th point of one reduction
// axis, and their parts are combined by shuffles, or through shared memory where the group is more than a warp.

#include <optional>
#include <vector>

#include "tile/walk.h"

namespace tilewright::cuda {

struct Partition {
    std::vector<int64_t> registers;  ///< per axis of the stage: points of a thread's tile; 1 along reductions
    std::vector<int64_t> strip;      ///< points of it that lie side by side
    std::vector<Expr> tiles;         ///< per spatial axis, over symbols and scalars
    std::optional<int64_t> count;    ///< of tiles, where it is known
    std::vector<size_t> order;       ///< spatial axes, slowest first
    int64_t group = 1;               ///< threads that share a tile, a power of two
    size_t shared_axis = 0;          ///< the reduction axis they share, if group > 1

    Expr tile_count() const { return product(tiles); }
    friend bool operator==(const Partition&, const Partition&) = default;
};

/// What a statement goes through: how long each axis' range can be, over symbols and scalars, and whether loops cut the
/// reduction into parts.
struct Share {
    std::vector<Expr> most;
    bool cut = false;
};
Share share_of(const TileProgram& program, const Walk& walk, const TreePath& statement, PrimitiveId stage);

/// `threads`: of the block. Of a reduction in parts no more threads share a tile than its vector axis asks for: what
/// they have summed up stays with them from part to part.
Partition make_partition(const TensorExpr& expr, const Micro& micro, const Share& share, int threads);

/// How many threads the statement has work for; nothing where only the run knows.
std::optional<int64_t> wanted_threads(const TensorExpr& expr, const Micro& micro, const Share& share);

}  // namespace tilewright::cuda
