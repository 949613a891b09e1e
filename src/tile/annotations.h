#pragma once
// How the code of a Compute is generated where tiles and registers leave a choice. The generated code follows them;
// results stay the same but for the order in which a sum is accumulated.
//
//     compute 0 vector n lanes 16 registers [m=2 n=32] padding partition accumulators 4 in_flight 8 cut [m]
//
// An annotation that is absent is derived by `annotate` (tile/annotate/annotate.h), before code is generated. CPUs and
// GPUs have annotations of their own, and ignore each other's:
//
//     compute 0 vector n lanes 4 registers [m=8 n=4 k=8] padding local unroll [k=8] read 0 by 4 read 1 by 4 write by 1

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

namespace tilewright {

/// Every sum is kept in several accumulators, which consecutive steps of the innermost reduction loop use in turn; they
/// are added up at the end. A tile with few sums otherwise waits for the latency of its multiply-adds.
struct Accumulators {
    int64_t most = 1;  ///< of one sum
    int64_t in_flight =
        0;  ///< of all sums of a register tile; a tile of n has in_flight / n per sum. 0: `most` per sum
    friend bool operator==(const Accumulators&, const Accumulators&) = default;
    /// Of one sum, in a tile of so many vectors of sums.
    int64_t per_sum(int64_t results) const;
};

/// Products are summed without a scale that the inner loops of the reduction repeat, and the sums are scaled
/// (tile/hoisted_scale.h).
struct HoistScale {
    int64_t vectors = 0;    ///< register tiles of at most so many; 0: none
    int64_t in_flight = 1;  ///< accumulators of a register tile of fewer vectors, where inner loops are unrolled
    friend bool operator==(const HoistScale&, const HoistScale&) = default;
};

/// The epilogue of a register tile runs in a loop instead of being unrolled over the tile.
struct EpilogueLoop {
    std::vector<size_t> axes;  ///< the loop runs along the first of these with enough points; empty: unrolled
    int64_t vectors = 1;       ///< tiles of fewer vectors are unrolled
    int64_t steps = 1;         ///< least points of the loop's axis
    friend bool operator==(const EpilogueLoop&, const EpilogueLoop&) = default;
};

/// Results of more bytes than this are written by non-temporal stores.
using NonTemporal = int64_t;
inline constexpr NonTemporal kNonTemporalAlways = 0;
inline constexpr NonTemporal kNonTemporalNever = std::numeric_limits<int64_t>::max();

/// Software prefetch of an operand.
enum class PrefetchKind : uint8_t {
    Task,      ///< what the next task reads, beside each read
    Panel,     ///< what later steps of the sum read, beside each read
    Rows,      ///< a share of the next register tile's rows, with each step of the sum
    Window,    ///< what a window reads for the first time, with each step of the sum
    Map,       ///< what the next tile of a constant-coefficient linear transform reads for the first time
    Epilogue,  ///< the operand of the tile's epilogue, before its sum
    Next,      ///< a share of the next panel of a factor, with each step of the sum
};
std::string_view to_string(PrefetchKind kind);
struct Prefetch {
    size_t access = 0;
    PrefetchKind kind = PrefetchKind::Panel;
    int64_t bytes = 0;    ///< distance from what is read now
    int64_t results = 1;  ///< tiles of fewer vectors of results do without
    friend bool operator==(const Prefetch&, const Prefetch&) = default;
};

/// What computes the tail of a spatial axis' register tiles whose size is unknown at compile time. The vector axis is
/// always masked.
struct Tail {
    size_t axis = 0;
    /// Tail specialisation: numbers of points that have code of their own, ascending up to the tile; the smallest that
    /// is not less than the tail computes it, and stores under a condition. Longer tails are several tiles (tail_step).
    std::vector<int64_t> sizes;
    /// The last size is the tile; a tail longer than all others is computed by a whole tile that ends where the axis
    /// does (Halide's ShiftInwards): some results are computed twice.
    bool shift = false;
    /// Where the axis is cut: pieces of at most so many points (the border of a padded window) run point by point,
    /// without code for tiles.
    int64_t border = 0;
    friend bool operator==(const Tail&, const Tail&) = default;
};

// --- of a GPU

/// How the threads of a block read an operand of a Compute.
struct OperandRead {
    enum class By : uint8_t {
        Elements,   ///< `width` of them at a time, where it is read in a loop over register coordinates of its own
        Fragments,  ///< of matrix instructions, by ldmatrix
        Place,      ///< by matrix instructions of a warpgroup themselves, from shared memory
    };
    size_t access = 0;
    By by = By::Elements;
    int64_t width = 1;
    friend bool operator==(const OperandRead&, const OperandRead&) = default;
};

/// How the threads of a block read the operands of a Compute and write its result. Vectors have 16 bytes at most, and
/// addresses that are multiples of their size.
struct ThreadAccess {
    std::vector<OperandRead> reads;  ///< ascending accesses; those that are absent are read element by element
    int64_t write = 1;               ///< elements at a time
    friend bool operator==(const ThreadAccess&, const ThreadAccess&) = default;
    const OperandRead* read(size_t access) const;
};

/// How a Load or a Store copies.
struct BlockCopy {
    enum class By : uint8_t {
        Threads,
        Async,  ///< by threads, with copies that run beside the program (cp.async), in a loop of several stages
        Boxes,  ///< by TMA
    };
    By by = By::Threads;
    int64_t width = 1;  ///< elements that a thread copies at a time
    /// Dimensions of a Load's buffer, or axes of a Store's stage, as threads go through them, the fastest last; vectors
    /// lie along that one. Empty: as the threads have the elements in their registers, or by boxes.
    std::vector<size_t> order;
    friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};

struct Annotations {
    std::optional<Accumulators> accumulators;
    std::optional<HoistScale> hoist_scale;
    std::optional<bool> unroll_sum;  ///< of a constant-coefficient linear transform (program/constant_transform.h)
    std::optional<EpilogueLoop> epilogue_loop;
    std::optional<NonTemporal> non_temporal;
    std::optional<std::vector<Prefetch>> prefetch;
    /// Tile registers load their left factor with a hint that caches need not keep it. Where another core has written
    /// it, every panel of columns would fetch it from there again.
    std::optional<bool> stream_left;
    /// Partial sums are prefetched before the steps of a register tile and added behind them: until then they are on
    /// their way from a far cache. Otherwise the tile's sums begin with them.
    std::optional<bool> resume_late;
    std::vector<Tail> tails;                 ///< per axis; an axis without one: derived
    std::optional<std::vector<size_t>> cut;  ///< axes whose loops are cut where conditions change (tile/cuts.h)
    // Of a GPU.
    std::optional<std::vector<int64_t>> unroll;  ///< per axis: steps of a loop over a reduction that are unrolled
    std::optional<ThreadAccess> access;
    /// The products of a warpgroup go on while the next step of their loop begins: copies run one step less ahead.
    std::optional<bool> overlap;
    friend bool operator==(const Annotations&, const Annotations&) = default;
};

}  // namespace tilewright
