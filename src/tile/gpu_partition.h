#pragma once
// How the threads of a block share the work of one statement.
//
// The spatial axes of the stage are cut into register tiles, one thread's work at a time. Threads go through the tiles
// along the vector axis first, so that neighbours in a warp meet neighbours in memory; a tile's virtual threads (Gensor
// §IV) are strips of it that lie as far apart as all threads together reach. Where there are fewer tiles than threads,
// or the vector axis is summed over, a group of threads shares a tile: each takes every group-th point of one reduction
// axis, and their parts are combined by shuffles, or through shared memory where the group is more than a warp.
//
// Products on matrix instructions deal tiles to warps. An instruction's result is a register tile as well, whose points
// lie as PTX has them (PTX ISA, "Matrix fragments for mma.m16n8k16"), so that sums, epilogues, copies and the rows'
// reductions of a softmax go through it like any other:
//
//     rows     of registers r = 0, 1, ...:  16 (r / 2) + 8 (r % 2) + lane / 4
//     columns                               8 (r / 2) + 2 (lane % 4) + r % 2
//
// The sum is spread as columns are: the result of one product is then the left operand of the next in the very
// registers it was computed in. (For f16 and bf16 that is PTX's order. For tf32 PTX has lane % 4 + 4 (r % 2); a sum may
// be taken in any order that both operands share.)
//
// A tile of a warpgroup (wgmma) is distributed over its four warps: rows 64 (r / 2) + 16 warp + 8 (r % 2) + lane / 4
// ("Register fragments for wgmma.mma_async.m64nNk16"), all else as above.

#include <optional>
#include <vector>

#include "tile/walk.h"

namespace tilewright::gpu {

/// How the points of a thread's tile lie along an axis: side by side but for virtual threads, or as above. Right: as
/// the columns of a right operand do, 8 r + lane / 4.
enum class Spread : uint8_t { Strip, Rows, Columns, Right };

struct Partition {
    std::vector<int64_t> registers;  ///< per axis of the stage: points of a thread's tile; 1 along reductions, but for
                                     ///< those that are spread
    std::vector<int64_t> strip;      ///< points of it that lie side by side
    std::vector<Spread> spread;
    int64_t warps = 0;             ///< that share a tile, 1 or 4; 0: it is a thread's or a group's
    std::vector<Expr> tiles;       ///< per spatial axis, over symbols and scalars
    std::optional<int64_t> count;  ///< of tiles, where it is known
    std::vector<size_t> order;     ///< spatial axes, slowest first
    int64_t group = 1;             ///< threads that share a tile, a power of two
    size_t shared_axis = 0;        ///< the reduction axis they share, if group > 1

    Expr tile_count() const { return product(tiles); }
    /// Points from where one tile begins along the axis to where the next does.
    int64_t span(size_t axis) const {
        constexpr int64_t kThreads[] = {1, 8, 4, 8};  // that share it
        const int64_t more = spread[axis] == Spread::Rows ? warps : 1;
        return registers[axis] * kThreads[static_cast<size_t>(spread[axis])] * more;
    }
    /// Threads a tile takes.
    int64_t takes() const { return warps != 0 ? 32 * warps : group; }
    friend bool operator==(const Partition&, const Partition&) = default;
};

/// What a statement goes through: how long each axis' range can be, over symbols and scalars, and whether loops cut the
/// reduction into parts.
struct Share {
    std::vector<Expr> most;
    bool cut = false;
};
Share share_of(const TileProgram& program, const Walk& walk, const TreePath& statement, PrimitiveId stage);

/// `threads`: of the block. Of a reduction in parts no more threads share a tile than its vector axis has points: what
/// they have summed up stays with them from part to part.
Partition make_partition(const TensorExpr& expr, const Micro& micro, const Share& share, int threads);

/// How many threads the statement has work for; nothing where that is dynamic.
std::optional<int64_t> wanted_threads(const TensorExpr& expr, const Micro& micro, const Share& share);

}  // namespace tilewright::gpu
