#pragma once
// The loops over the register tiles of one stage: where they are cut, full tiles, and the code of their tails. Internal
// to the stage emitter.

#include <functional>
#include <optional>
#include <vector>

#include "backend/cpu/stage_values.h"

namespace tilewright::cpu {

class StageTiles : public StageValues {
  public:
    using StageValues::StageValues;

  protected:
    /// The points at which the loops of annotated axes are cut.
    void find_cuts();
    /// Runs `inner` once for each piece that the cuts make of axis a: inside the loops around it, so that a row's
    /// padded ends are computed with the row, while it is near.
    void in_pieces(size_t a, const std::function<void()>& inner);
    /// Runs `inner` once for every register tile of axis a; full tiles in a loop, the tail as its own code.
    void tiles_of(size_t a, const std::function<void()>& inner);

    int64_t register_tile(size_t a) const;
    /// The loops around the register tile, outermost first: those over spatial axes, or those of the reduction.
    std::vector<size_t> order(bool reductions) const;
    /// Every combination of register coordinates of the spatial (or reduction) axes; the vector axis varies fastest, so
    /// that a row's broadcast operand meets all its vectors and is done with: two tiles of rows do not fit registers.
    std::vector<Coords> points(bool reductions) const;
    bool is_clamped() const;
    /// The larger or smaller number, folded where both are constants: the builder leaves these intrinsics to LLVM.
    llvm::Value* extremum(llvm::Value* x, llvm::Value* y, bool larger);

    std::vector<std::vector<Expr>> cuts_;  ///< per axis, ascending
    std::optional<size_t> unrolled_axis_;  ///< the reduction axis of which `accumulators_` steps are unrolled
    int64_t accumulators_ = 1;             ///< of each sum
    bool whole_sum_ = false;               ///< the register tile being emitted has all steps of the sum

  private:
    struct Piece {
        Expr from, to;
        llvm::Value* start;
        llvm::Value* end;
    };
    void enter_piece(size_t a, const AxisRange& whole, const Piece& piece);

    /// The register tiles of an axis, or of a piece of it.
    struct Tiles {
        size_t a = 0;
        int64_t tile = 1;
        llvm::Value* hi = nullptr;
        llvm::Value* whole_hi = nullptr;  ///< where the full tiles end
        std::optional<int64_t> rest;      ///< points of the tail, where known
        std::vector<int64_t> sizes;       ///< of a tail that is unknown: Tail::sizes
        bool shift = false;               ///< Tail::shift
        bool fills = true;                ///< there may be a full tile
    };
    /// The code of one tile.
    struct TileCode {
        int64_t points = 1;
        llvm::Value* mask = nullptr;  ///< of its last vector
        bool clamp = false;           ///< its points may lie beyond the end: they read and write the last one
        bool tail_known = false;      ///< with a mask: it covers exactly the tail
    };
    Tiles tiles_in(size_t a);
    void one_tile(const Tiles& t, llvm::Value* at, const TileCode& code, const std::function<void()>& inner);
    /// May move the end of the full tiles.
    void full_tiles(Tiles& t, const std::function<void()>& inner);
    void tail(const Tiles& t, llvm::Value* at, const std::function<void()>& inner);
    void tail_specialised(const Tiles& t, llvm::Value* at, const std::function<void()>& inner);
    /// The tail specialisations that tails of up to `most` points need.
    ///     sizes 1 2 3 4, most 3: 1 2 3        sizes 1 2 3 4 5 6 8 10 12, most 11: all
    std::vector<int64_t> tail_sizes(size_t a, int64_t tile, int64_t most) const;
    llvm::Value* constant_mask(int64_t active);
    llvm::Value* runtime_mask(llvm::Value* at, llvm::Value* hi);
};

}  // namespace tilewright::cpu
