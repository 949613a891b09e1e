#pragma once
// A numeric model of one stage: the footprint of a tile in each operand, and the cost of its arithmetic. It is built
// once per stage and evaluated thousands of times during schedule construction.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "program/analysis/dynamic.h"
#include "program/analysis/scalar_cost.h"
#include "program/program.h"

namespace tilewright {

/// The range of an index over a tile. Affine terms add up. Blocked terms (c // 512, c % 512) are exact for tiles that
/// begin at a block boundary or divide a block.
///     i1 + i4 - 1 over a tile of 14 x 3: (14 - 1) + (3 - 1)
class IndexReach {
  public:
    IndexReach() = default;
    /// `whole`: the range assumed of a data-dependent index.
    IndexReach(Expr index, int64_t whole);
    int64_t over(std::span<const int64_t> tile) const;
    /// The summands of the index: the absolute coefficient of each, and the range of what it multiplies.
    std::vector<std::pair<int64_t, IndexReach>> summands() const;
    /// How far the index moves where the axis moves by `distance`, a multiple of the blocks in which it is addressed;
    /// otherwise approximately.
    ///     i0 // 64 and i0 % 64 where i0 moves by 128: 2 and 0
    int64_t step(size_t axis, int64_t distance) const;
    /// The index that takes `count` values, 0, 1, ...
    static IndexReach counter(int64_t count);
    /// A summand is a minimum or maximum: ranges of summands may exclude each other, as those of min(i, 2) + max(i - 3,
    /// 0).
    bool has_choice() const;

  private:
    enum class Kind : uint8_t { Axis, Div, Mod, Either, Constant };
    struct Factor {
        Kind kind = Kind::Axis;
        size_t axis = 0;
        int64_t number = 0;
        std::vector<IndexReach> parts;
    };
    struct Product {
        int64_t coefficient = 1;
        std::vector<Factor> factors;
    };
    /// Sets axis_ of an index with a single term, the coefficient times an axis.
    void note_axis();

    std::vector<Product> products_;
    std::optional<size_t> axis_;  ///< most indices are that simple
};

/// The points of a tile along an axis are `count` pieces of equal size, which begin `distance` points apart: the
/// sub-tiles of virtual threads.
struct Strip {
    size_t axis = 0;
    int64_t count = 1, distance = 0;
};

/// An access or the result of a stage.
struct OperandModel {
    int64_t element_bytes = 4;
    /// An offset term, a summand of the offset in memory: its stride in elements and the range of its factor. Terms are
    /// sorted by stride.
    struct Part {
        int64_t stride = 0;
        IndexReach reach;
        bool picked = false;  ///< data-dependent: depends on an index that is read from a tensor
        /// Places that the summands with this stride have together: those of the dimension, if they may exclude each
        /// other.
        double most = std::numeric_limits<double>::infinity();
    };
    std::vector<Part> parts;
    std::vector<int64_t> extents;  ///< of the tensor, per dimension
    std::vector<int64_t> strides;  ///< elements moved by one step along each axis
    std::vector<bool> depends;     ///< on each axis, through data-dependent indices as well
    std::vector<bool> picks;       ///< per axis: it selects the index that is read, and so the place; may be empty
    /// Per axis: the number of points at which the operand is read, and their share of the axis, where loops are cut so
    /// that it is not read elsewhere (as an operand of a concatenation). Empty: it is read everywhere.
    std::vector<int64_t> read_points;
    std::vector<double> shares;
    bool in_body = true;  ///< read once per point (otherwise once per result, by the epilogue)
    bool result = false;
    bool irregular = false;                 ///< indexed by data
    Residence residence = Residence::Near;  ///< when the kernel starts

    double share() const;  ///< of the stage's points at which it is read
    bool picked_along(size_t axis) const { return axis < picks.size() && picks[axis]; }

    /// Elements that a tile with these extents per axis touches. Terms whose ranges overlap add up (sliding windows),
    /// others multiply. Every data-dependent index that is read counts as another place.
    double elements(std::span<const int64_t> tile) const;
    /// Bytes of the cache lines that hold those elements, 64 bytes each.
    double bytes(std::span<const int64_t> tile) const;
    /// The number of pages of `page_bytes` that hold those elements.
    double pages(std::span<const int64_t> tile, int64_t page_bytes) const;
    /// The number of contiguous runs that those elements form; more than 1 where data or conditions decide which.
    double runs(std::span<const int64_t> tile) const;
    /// The lines that each set of a cache receives from the tile, on average over the sets that receive any.
    /// `way_bytes`: of the cache (cache_sets.h).
    ///     4608 rows of 64 bytes that are 256 bytes apart, 128 KiB: 4608 lines in 512 sets, 9
    double lines_in_a_set(std::span<const int64_t> tile, int64_t way_bytes) const;
    /// The operand of tiles that consist of strips. Their extents are then those of one strip.
    OperandModel in_strips(std::span<const Strip> strips) const;
};

struct StageModel {
    std::vector<int64_t> extents;  ///< per axis; dynamic ones are assumed
    std::vector<bool> dynamic;     ///< per axis: the extent is unknown at compile time
    size_t spatial = 0;
    /// Per axis, ascending: the points where conditions change and the code is cut (tile/cuts.h). Empty: none.
    std::vector<std::vector<int64_t>> cuts;
    std::vector<OperandModel> operands;  ///< one per access, then the result
    bool product = false;                ///< a sum of products: one multiply-add per point
    double body_operations = 1;          ///< average vector instructions of the body per point, without loads
    /// Of a product whose factors are computed or converted: instructions of a factor, once for each combination of the
    /// register coordinates on which they depend. With any, the point itself has one multiply-add.
    struct FactorWork {
        double operations = 0;
        std::vector<bool> depends;  ///< per axis
    };
    std::vector<FactorWork> factors;
    double least_operations = 1;     ///< those that any code needs: one side of every index-dependent select
    double epilogue_operations = 0;  ///< of the epilogue, per result
    bool reduces = false;
    /// A constant-coefficient linear transform (program/constant_transform.h). Its rows are axes of the result.
    struct Map {
        std::vector<uint32_t> rows;
        std::vector<int64_t> row_extents;
        double row_count = 1, column_count = 1;
        double operations = 0;  ///< with common subexpressions shared, for one column vector
    };
    std::optional<Map> map;

    double points() const;   ///< of the iteration space
    double results() const;  ///< of its spatial part
    /// Floating-point operations that any code needs: two per point of a product, else those of the body.
    double flops() const;
    const OperandModel& result() const { return operands.back(); }
};

/// The model of one stage. `assumed`: the extent of dynamic dimensions that neither `bindings` nor `stages.assumed`
/// has.
StageModel stage_model(const Program& stages, PrimitiveId stage, const Bindings& bindings = {},
                       int64_t assumed = kAssumedExtent);
/// Of all stages. They depend on the stages alone, not on a schedule.
using StageModels = IndexVector<PrimitiveId, StageModel>;
StageModels stage_models(const Program& stages, const Bindings& bindings = {});

}  // namespace tilewright
