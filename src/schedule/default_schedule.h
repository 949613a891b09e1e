#pragma once
// The default rule: tiles picked from the shapes alone, without a model of the machine. It is what every kernel gets
// until the schedulers of this folder's neighbours have been asked, and what they are measured against.

#include "program/analysis/access.h"
#include "tile/tile.h"

namespace tilewright {

struct ScheduleTarget {
    int lanes = 16;  ///< f32 lanes of a vector register
    int vector_registers = 32;
    int threads = 1;
    int64_t l2_bytes = 1 << 20;
    int64_t cache_bytes = 32 << 20;  ///< of the last level: larger tensors come from memory
};

/// A schedule for a kernel of one stage, or of several that share their outer spatial axes ("rows"): `row_axes` says,
/// per stage, which of its axes are the shared rows, in one order. Always succeeds.
TileProgram default_schedule(Program stages, const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                             const ScheduleTarget& target);
TileProgram default_schedule(Program stages, const ScheduleTarget& target);

/// How the default rule would run one expression's innermost level.
struct StageChoice {
    Micro micro;
    bool contraction = false;   ///< some operand is reused along a register axis
    std::vector<size_t> loads;  ///< accesses to be copied (padding decided, or lanes made contiguous) before use
    /// The vectors run across rows of the operand that are turned around: so many of its rows at a time, outside all
    /// else, give every row of the result several lines in turn.
    std::optional<int64_t> strip;
    /// Summed axis whose points lie far apart: walked one by one, outside the vectors, so that memory is read row by
    /// row.
    std::optional<size_t> summed_rows;
    /// Windows slide over two axes: the outer one, of which the register tile holds neighbours.
    std::optional<size_t> windows;
    /// Memory is walked along this axis, with everything else inside: threads share it out before any other.
    std::optional<size_t> shared;
};
StageChoice choose_micro(const Program& stages, const TensorExpr& expr, DType out, const ScheduleTarget& target);

/// The copies of those accesses (StageChoice::loads) of a stage, packed for its micro-kernel's lanes.
std::vector<Stmt> make_loads(const Program& stages, PrimitiveId stage, const std::vector<size_t>& loads,
                             const Micro& micro);

/// Whether windows of neighbours along the axis share elements. Where neighbouring axes have become one, an index names
/// planes beside their rows: steps say which of them slides.
///     x[12544*i0 + 224*i1 + 112*i3], i3 < 3: a step of i1 is two of i3's three, one of i0 is 112
bool slides(const Program& stages, const TensorExpr& e, size_t a);

}  // namespace tilewright
