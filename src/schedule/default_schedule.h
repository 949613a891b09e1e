#pragma once
// The default heuristic: tiles from the shapes and a few sizes of the target, without a cost model. Other schedulers
// start from its schedule and are compared with it.

#include "cost/target.h"
#include "program/analysis/access.h"
#include "tile/tile.h"

namespace tilewright {

/// The schedule of a kernel of one stage, or of several that share their outer spatial axes ("rows"). `row_axes`: per
/// stage, the axes that are the shared rows, in one order for all stages. Always succeeds.
TileProgram default_schedule(Program stages, const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                             const Target& target);
TileProgram default_schedule(Program stages, const Target& target);

/// The innermost level of one expression, chosen by the default heuristic.
struct StageChoice {
    Micro micro;
    bool contraction = false;   ///< an operand is reused along a register axis
    std::vector<size_t> loads;  ///< accesses that are copied before use, to decide padding or to make lanes contiguous
    /// The vectors run across rows of the operand: blocks of lanes x lanes along this axis are transposed in registers.
    std::optional<size_t> transposed;
    /// The step of an outermost loop over the vector axis, in points, so that every row of the transposed result is
    /// written several lines at a time.
    std::optional<int64_t> strip;
    /// A reduction axis of large stride. Its loop is outside of the vectors' and takes one point at a time, so that
    /// memory is read row by row.
    std::optional<size_t> summed_rows;
    /// Loops over blocks of the reduction outside of those over rows, outermost first, so that a block's panel of the
    /// right factor stays near: in L1 for tile registers, in L2 beside the next block's for vectors.
    struct SumBlock {
        size_t axis = 0;
        int64_t points = 1;
    };
    std::vector<SumBlock> sum_blocks;
    /// The factors of a product that are copied block by block, packed: the right one for each block of columns, the
    /// left one, with keeps_left, for all of them.
    std::vector<size_t> right_blocks, left_blocks;
    /// The blocks' loops are outside of those over columns: a block of the left factor stays in L2 for all of them.
    bool keeps_left = false;
    /// Where windows slide over two axes: the outer one. The register tile holds several of its points.
    std::optional<size_t> windows;
    /// The axis along which memory is traversed, with all other loops inside. Threads split it before any other axis.
    std::optional<size_t> shared;
};
StageChoice choose_micro(const Program& stages, const TensorExpr& expr, DType out, const Target& target);

/// The copies of a stage's accesses (StageChoice::loads), packed for its micro-kernel's lanes where they are not
/// contiguous already or collide in the caches. `panels`: always, for register tiles along this axis.
std::vector<Stmt> make_loads(const Program& stages, PrimitiveId stage, const std::vector<size_t>& loads,
                             const Micro& micro, std::optional<size_t> panels = {});

/// Whether windows of neighbours along axis `a` share elements. After axes are merged, one index covers planes and
/// rows; the strides tell which of them slides.
///     x[12544*i0 + 224*i1 + 112*i3], i3 < 3: a step of i1 is two of i3's three, one of i0 is 112
bool slides(const Program& stages, const TensorExpr& e, size_t a);

}  // namespace tilewright
