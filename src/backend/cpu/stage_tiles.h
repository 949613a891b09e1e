#pragma once
// The loops over the register tiles of one stage: cuts, full tiles, and the code of tails. Internal to the stage
// emitter.

#include <functional>
#include <optional>
#include <vector>

#include "backend/cpu/stage_values.h"

namespace tilewright::cpu {

class StageTiles : public StageValues {
  public:
    using StageValues::StageValues;

  protected:
    /// Determines the points at which the loops of annotated axes are cut.
    void find_cuts();
    /// Runs `inner` once per subrange of axis a between cuts. The subranges are inside the outer loops, so that a row's
    /// padded ends are computed with the row, while it is in cache.
    void in_pieces(size_t a, const std::function<void()>& inner);
    /// Runs `inner` for every register tile of axis a; full tiles in a loop, the tail as separate code.
    void tiles_of(size_t a, const std::function<void()>& inner);

    int64_t register_tile(size_t a) const;
    /// The loops around the register tile, outermost first: those over spatial axes, or those of the reduction.
    std::vector<size_t> order(bool reductions) const;
    /// Returns every combination of register coordinates of the spatial (or reduction) axes. The vector axis varies
    /// fastest, so that a row's broadcast operand is used for all vectors of the row and then dead: registers do not
    /// hold two rows of operands.
    std::vector<Coords> points(bool reductions) const;
    bool is_clamped() const;
    /// The larger or smaller number, folded if both are constants: IRBuilder does not fold these intrinsics.
    llvm::Value* extremum(llvm::Value* x, llvm::Value* y, bool larger);

    std::vector<std::vector<Expr>> cuts_;  ///< per axis, ascending
    std::optional<size_t> unrolled_axis_;  ///< the reduction axis, unrolled by `accumulators_` steps
    int64_t accumulators_ = 1;             ///< per sum
    bool whole_sum_ = false;               ///< the current register tile contains all steps of the reduction

  private:
    struct Piece {
        Expr from, to;
        llvm::Value* start;
        llvm::Value* end;
    };
    void enter_piece(size_t a, const AxisRange& whole, const Piece& piece);

    /// The register tiles of an axis or of a subrange of it.
    struct Tiles {
        size_t a = 0;
        int64_t tile = 1;
        llvm::Value* hi = nullptr;
        llvm::Value* whole_hi = nullptr;  ///< end of the full tiles
        std::optional<int64_t> rest;      ///< points of the tail, if known at compile time
        std::vector<int64_t> sizes;       ///< for a dynamic tail: Tail::sizes
        bool shift = false;               ///< Tail::shift
        bool fills = true;                ///< there may be a full tile
        int64_t longest = 0;              ///< points of the longest tail
    };
    /// The code of one tile.
    struct TileCode {
        int64_t points = 1;
        llvm::Value* mask = nullptr;  ///< of its last vector
        bool clamp = false;           ///< points beyond the end read and write the last one
        bool tail_known = false;      ///< with a mask: whether it covers exactly the tail
    };
    Tiles tiles_in(size_t a);
    void one_tile(const Tiles& t, llvm::Value* at, const TileCode& code, const std::function<void()>& inner);
    /// May extend the end of the full tiles.
    void full_tiles(Tiles& t, const std::function<void()>& inner);
    void tail(const Tiles& t, llvm::Value* at, const std::function<void()>& inner);
    /// A tail, or a part of one, of `points` points, a number that may be known at run time alone.
    void tail_specialised(const Tiles& t, llvm::Value* at, llvm::Value* points, const std::function<void()>& inner);
    /// Tails that may be longer than all sizes with code of their own: a loop over tiles.
    void tail_of_tiles(const Tiles& t, bool dynamic, const std::function<void()>& inner);
    /// Returns the tail specialisations for tails of up to `most` points.
    ///     sizes 1 2 3 4, most 3: 1 2 3        sizes 1 2 3 4 5 6 8 10 12, most 11: all
    std::vector<int64_t> tail_sizes(size_t a, int64_t tile, int64_t most) const;
    llvm::Value* constant_mask(int64_t active);
    llvm::Value* runtime_mask(llvm::Value* at, llvm::Value* hi);
};

}  // namespace tilewright::cpu
