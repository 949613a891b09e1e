#pragma once
// How the threads of a block share the work of one statement.
//
// The spatial axes of the stage are cut into register tiles, one per thread at a time. Threads are numbered along the
// vector axis first, so that neighbouring threads of a warp access neighbouring memory. The virtual threads of a tile
// (Gensor §IV) are strips whose distance is the extent that all threads cover together. Where there are fewer tiles
// than threads, or the vector axis is a reduction axis, several cooperating threads share a tile: each takes every
// group-th point of one reduction axis, or, where that is the vector axis, every group-th vector. Then they are
// neighbours, which read neighbouring vectors. Where the vector axis is spatial, neighbours have neighbouring tiles,
// and the threads of a tile are `apart`. Shuffles combine their partial sums, or shared memory where the threads span
// several warps:
//
//     y[n] = sum(k) w[n, k] x[k], vector k lanes 8    thread t reads w[t / 32, 8 (32 j + t % 32) ...], j = 0, 1, ...
//     y[n] = sum(k) w[k, n] x[k], vector n lanes 8    thread t reads w[8 j + t / 32, 8 (t % 32) ...]
//
// Contractions on matrix instructions assign tiles to warps. The result of an instruction is a register tile as well,
// with the element order of PTX (PTX ISA, "Matrix fragments for mma.m16n8k16"). Sums, epilogues, copies and the row
// reductions of a softmax treat it like any other register tile:
//
//     rows     of registers r = 0, 1, ...:  16 (r / 2) + 8 (r % 2) + lane / 4
//     columns                               8 (r / 2) + 2 (lane % 4) + r % 2
//
// The reduction axis of an operand has the order of the columns, so that the result of one product is the left operand
// of the next in the same registers. (For f16 and bf16 this is PTX's order. For tf32, PTX has lane % 4 + 4 (r % 2); a
// reduction may use any order that both operands share.)
//
// A warpgroup tile (WGMMA) is distributed over its four warps: rows 64 (r / 2) + 16 warp + 8 (r % 2) + lane / 4
// ("Register fragments for wgmma.mma_async.m64nNk16"), all else as above.
//
// A left operand of tf32 that lies along the rows in memory (left_along_rows) is read into registers, from rows of 128
// bytes that TMA has swizzled. Which row of memory is which row of an instruction is free, and chosen so that a thread
// has two neighbours, reads both at once, and the 16 threads that are served together meet 32 banks. With lane / 4 =
// 4 a + 2 b + c and warp = 2 d + e:
//
//     row pairs   64 (r / 2) + 32 d + 16 b + 8 e + 4 a + 2 c + r % 2
//     quads       8 (r / 2) + 4 (r % 2) + lane % 4: PTX's order of tf32 along the sum, which the right operand has

#include <optional>
#include <vector>

#include "tile/walk.h"

namespace tilewright::gpu {

/// Order of the points of a thread's tile along an axis. Strip: contiguous except for virtual threads. Rows, Columns,
/// RowPairs, Quads: as above. Right: the columns of a right operand, 8 r + lane / 4.
enum class Spread : uint8_t { Strip, Rows, Columns, Right, RowPairs, Quads };

/// Sums that threads apart exchange at a time, through shared memory.
inline constexpr int64_t kExchanged = 8;

struct Partition {
    std::vector<int64_t> registers;  ///< per axis of the stage: points of a thread's tile; of a reduction those that it
                                     ///< takes in a step: a vector, or several of a matrix instruction
    std::vector<int64_t> strip;      ///< contiguous points of the thread's tile
    std::vector<Spread> spread;
    int64_t warps = 0;             ///< warps that share a tile, 1 or 4; 0: a thread or cooperating threads
    std::vector<Expr> tiles;       ///< per spatial axis, over symbols and scalars
    std::optional<int64_t> count;  ///< number of tiles; none: dynamic
    std::vector<size_t> order;     ///< spatial axes, slowest first
    int64_t group = 1;             ///< threads that share a tile, a power of two
    size_t shared_axis = 0;        ///< the reduction axis they share, if group > 1
    int64_t apart = 1;             ///< from one of them to the next

    Expr tile_count() const { return product(tiles); }
    /// Distance between the starts of neighbouring tiles along the axis, in points.
    int64_t span(size_t axis) const {
        constexpr int64_t kThreads[] = {1, 8, 4, 8, 8, 4};  // threads along the axis
        const bool rows = spread[axis] == Spread::Rows || spread[axis] == Spread::RowPairs;
        return registers[axis] * kThreads[static_cast<size_t>(spread[axis])] * (rows ? warps : 1);
    }
    /// The axes in the order of a thread's arrays: ascending, but the columns of matrix instructions last of the
    /// spatial ones, since an instruction takes sums that lie side by side along them, and Quads first, since pairs of
    /// rows are read together.
    std::vector<size_t> array_axes() const;
    /// Whether they are threads of several warps, which combine their sums through shared memory.
    bool spans_warps() const { return group * apart > 32 && group > 1; }
    /// Bytes of shared memory that they need, in a block of `threads`; sums have `size` bytes.
    int64_t exchange_bytes(int threads, int64_t size, size_t spatial) const;
    /// Number of threads per tile.
    int64_t takes() const { return warps != 0 ? 32 * warps : group; }
    friend bool operator==(const Partition&, const Partition&) = default;
};

/// The iteration space of a statement: the largest extent of each axis, over symbols and scalars, and whether loops cut
/// its reduction.
struct Share {
    std::vector<Expr> most;
    bool cut = false;
};
Share share_of(const TileProgram& program, const Walk& walk, const TreePath& statement, PrimitiveId stage);

/// `threads`: of the block. When loops cut the reduction, at most as many threads cooperate on a tile as its vector
/// axis has points, since their partial sums stay in their registers between steps.
Partition make_partition(const TensorExpr& expr, const Micro& micro, const Share& share, int threads);

/// Returns the number of threads that the statement can use; nothing where it is dynamic.
std::optional<int64_t> wanted_threads(const TensorExpr& expr, const Micro& micro, const Share& share);

}  // namespace tilewright::gpu
