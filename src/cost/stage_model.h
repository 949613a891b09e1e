#pragma once
// One stage as numbers: how much of each operand a tile touches, and what computing it costs. Made once per stage, and
// evaluated thousands of times while schedules are constructed.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "program/analysis/dynamic.h"
#include "program/analysis/scalar_cost.h"
#include "program/program.h"

namespace tilewright {

/// How far an index moves when each axis runs over a tile. Affine parts add up; blocks (c // 512, c % 512) are
/// followed, of tiles that begin where a block does or divide it.
///     i1 + i4 - 1 over a tile of 14 x 3: (14 - 1) + (3 - 1)
class IndexReach {
  public:
    IndexReach() = default;
    /// `whole`: what an index that the data decides may move.
    IndexReach(Expr index, int64_t whole);
    int64_t over(std::span<const int64_t> tile) const;
    /// Its summands, each as a coefficient (absolute) and what it multiplies.
    std::vector<std::pair<int64_t, IndexReach>> summands() const;

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
    std::vector<Product> products_;
};

/// An access or the result of a stage.
struct OperandModel {
    int64_t element_bytes = 4;
    /// What the offset in memory is a sum of: a stride in elements and how far its factor moves. Ascending strides.
    struct Part {
        int64_t stride = 0;
        IndexReach reach;
        bool picked = false;  ///< by a number that is read
    };
    std::vector<Part> parts;
    std::vector<int64_t> extents;  ///< of the tensor, per dimension
    std::vector<int64_t> strides;  ///< elements moved by one step along each axis
    std::vector<bool> depends;     ///< on each axis, through numbers that are read as well
    std::vector<bool> picks;  ///< per axis: it says which number is read, and so where this operand is; may be empty
    /// Per axis: over how many of its points the operand is read, and which share of them that is, where loops are cut
    /// so that it is not read elsewhere (one of a concatenation's). Empty: everywhere.
    std::vector<int64_t> read_points;
    std::vector<double> shares;
    bool in_body = true;  ///< read once a point (else once a result, by the epilogue)
    bool result = false;
    bool irregular = false;  ///< indexed by data

    double share() const;  ///< of the stage's points at which it is read
    bool picked_along(size_t axis) const { return axis < picks.size() && picks[axis]; }

    /// Elements that a tile with these extents per axis touches: neighbours run together (windows overlap), what lies
    /// farther apart multiplies. What the data picks is another place for each number that is read.
    double elements(std::span<const int64_t> tile) const;
    /// Bytes of the cache lines of those, 64 bytes each.
    double bytes(std::span<const int64_t> tile) const;
    /// Pages of so many bytes that hold those.
    double pages(std::span<const int64_t> tile, int64_t page_bytes) const;
};

struct StageModel {
    std::vector<int64_t> extents;  ///< per axis; dynamic ones are assumed
    size_t spatial = 0;
    /// Per axis, ascending: where conditions change, so that the code is cut there (tile/cuts.h). Empty: nowhere.
    std::vector<std::vector<int64_t>> cuts;
    std::vector<OperandModel> operands;  ///< one per access, then the result
    bool product = false;                ///< a sum of products: one multiply-add a point
    double body_operations = 1;          ///< vector instructions of the body at a point (loads apart), on average
    double least_operations = 1;         ///< of those, what no code can do without: one side of every choice by index
    double epilogue_operations = 0;      ///< of the epilogue at a result
    bool reduces = false;
    /// A constant-coefficient linear transform (program/constant_transform.h): its rows are axes of the result.
    struct Map {
        std::vector<uint32_t> rows;
        std::vector<int64_t> row_extents;
        double row_count = 1, column_count = 1;
        double operations = 0;  ///< of the shared sums, for one column vector
    };
    std::optional<Map> map;

    double points() const;   ///< of the iteration space
    double results() const;  ///< of its spatial part
    /// Floating-point operations that no code can do without: two a point for a product, else those of the body.
    double flops() const;
    const OperandModel& result() const { return operands.back(); }
};

/// `assumed`: the extent of dynamic dimensions that `bindings` does not have.
StageModel stage_model(const Program& stages, PrimitiveId stage, const Bindings& bindings = {},
                       int64_t assumed = kAssumedExtent);

}  // namespace tilewright
