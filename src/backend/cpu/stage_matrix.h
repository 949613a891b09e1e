#pragma once
// Products of one stage on tile registers (MatrixForm::Tile) or by dot products (MatrixForm::Dot). Internal to the
// stage emitter.
//
// A register tile of 32 x 32 sums is 2 x 2 accumulators. A step of the reduction loads two tiles of each factor and
// adds four products. After the last step the accumulators are stored to the task's frame, from where the epilogue
// reads them as vectors along the columns. Dot products have their accumulators in vectors, as multiply-adds do.

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "backend/cpu/stage_prefetch.h"
#include "backend/cpu/tile_unit.h"
#include "tile/matrix.h"

namespace tilewright::cpu {

class StageMatrix : public StagePrefetch {
  public:
    using StagePrefetch::StagePrefetch;

  protected:
    bool on_tiles() const { return m_.matrix && m_.matrix->tile(); }
    /// Before the loops of the stage, and after them.
    void enter_tiles();
    void leave_tiles();
    /// Clears the accumulators of the register tile `tile_points_`, or loads its partial sums unless `first`, an i1:
    /// those in StageJob::partial_sums, or those that `before` returns.
    void start_tiles(llvm::Value* first, const std::function<llvm::Value*(const Coords&)>* before);
    /// One step of the reduction.
    void add_products();
    /// Stores the accumulators to StageJob::partial_sums if `last`, an i1, is false, otherwise to `sums_memory()`:
    /// vectors of the tile's points, in their order.
    void store_tiles(llvm::Value* last);
    llvm::AllocaInst* sums_memory() const { return sums_; }

    bool on_dots() const { return m_.matrix && m_.matrix->dot(); }
    bool on_f16() const { return on_dots() && m_.matrix->type == MatrixType::F16; }
    /// Before the loops of the stage.
    void enter_dots();
    /// Before a step of the reduction.
    void start_dots() { packed_.clear(); }
    /// The accumulator with the products of p and of the next points along the sum. In f16 it is one of pairs.
    llvm::Value* add_dot(llvm::Value* sum, const Coords& p);
    /// In f16: the sums of a step's pairs start at 0 in accumulators of `count` i32 vectors, and join sums of f32.
    std::vector<llvm::AllocaInst*> start_pairs(size_t count);
    void add_pairs(llvm::AllocaInst* sum, llvm::AllocaInst* pairs);

  private:
    /// The rows of one accumulator: the first point, and their number.
    struct RowTile {
        Coords first;
        llvm::Value* rows = nullptr;
    };
    std::vector<RowTile> row_tiles();
    void configure(const std::vector<llvm::Value*>& rows, size_t columns);
    /// Whether the current register tile has the shapes of a whole one, which are configured outside of tails.
    bool is_whole() const;
    int accumulator(size_t row, size_t column) const { return static_cast<int>(row * columns_ + column); }
    llvm::Value* left_stride(const RowTile& rows);
    /// The points of the unrolled axes of the reduction, but for the sum.
    std::vector<Coords> terms();
    void add_products(const Coords& term);
    void load_left(int t, const RowTile& rows, const Coords& term);
    void load_right(int t, size_t column, const Coords& term);
    /// Whether the register does not have what lies there; it is assumed to have it from now on.
    bool loads_anew(int t, Expr from);
    /// PrefetchKind::Next: a share of the panel `bytes` ahead, of the lines that this step reads of one column's tile.
    void prefetch_next(llvm::Value* right, int64_t bytes, llvm::Value* stride);
    Expr offset_at(uint32_t slot, const Coords& p);
    /// The 4 bytes of an operand at p and at the next points along the sum, as i32, in every lane.
    llvm::Value* packed(uint32_t slot, Coords p);
    llvm::Type* sums_type();  ///< a vector of a row of an accumulator
    using AccumulatorBody = std::function<void(int, llvm::Value* at, llvm::Value* stride)>;
    /// At its place in `sums_`.
    void each_accumulator(const AccumulatorBody& body);
    /// At its place in StageJob::partial_sums.
    void each_partial_sum(const AccumulatorBody& body);
    llvm::Value* stride_of_rows(const std::function<Expr(const Coords&)>& offset, const Coords& first, int64_t bytes);

    std::optional<TileUnit> unit_;
    std::optional<TileSlots> slots_;
    std::array<std::optional<Expr>, kTileRegisters> held_;  ///< the offsets of the tiles that a step has loaded
    std::vector<RowTile> rows_;                             ///< of the current register tile
    size_t columns_ = 1;
    llvm::AllocaInst* sums_ = nullptr;
    std::vector<llvm::Value*> whole_;  ///< rows of the accumulators of a whole register tile
    size_t whole_columns_ = 1;
    std::map<std::pair<uint32_t, Coords>, llvm::Value*> packed_;  ///< of this step
};

}  // namespace tilewright::cpu
