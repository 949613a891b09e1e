#pragma once
// The default heuristic: tiles chosen from the shapes and a few sizes of the target, without a model of the machine.
// The other schedulers start from its schedule and are compared with it.

#include "cost/target.h"
#include "program/analysis/access.h"
#include "tile/tile.h"

namespace tilewright {

/// A schedule for a kernel of one stage, or of several that share their outer spatial axes ("rows"): `row_axes` has,
/// per stage, its axes that are the shared rows, in one order. Always succeeds.
TileProgram default_schedule(Program stages, const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                             const Target& target);
TileProgram default_schedule(Program stages, const Target& target);

/// The innermost level of one expression by the default heuristic.
struct StageChoice {
    Micro micro;
    bool contraction = false;   ///< some operand is reused along a register axis
    std::vector<size_t> loads;  ///< accesses to be copied (padding decided, or lanes made contiguous) before use
    /// The vectors run across rows of the operand: blocks of lanes x lanes along this axis are transposed in registers.
    std::optional<size_t> transposed;
    /// So many points of the vector axis at a time, in a loop outside of all others: every row of the transposed result
    /// gets several lines in turn.
    std::optional<int64_t> strip;
    /// A reduction axis whose points lie far apart: a loop outside of the vectors' takes them one by one, so that
    /// memory is read row by row.
    std::optional<size_t> summed_rows;
    /// Where windows slide over two axes: the outer one, of which the register tile holds neighbours.
    std::optional<size_t> windows;
    /// The axis that memory is walked along, with everything else inside: it is split among threads before any other.
    std::optional<size_t> shared;
};
StageChoice choose_micro(const Program& stages, const TensorExpr& expr, DType out, const Target& target);

/// The copies of those accesses (StageChoice::loads) of a stage, packed for its micro-kernel's lanes.
std::vector<Stmt> make_loads(const Program& stages, PrimitiveId stage, const std::vector<size_t>& loads,
                             const Micro& micro);

/// Whether windows of neighbours along the axis share elements. After axes are merged one index holds planes and rows:
/// the strides decide which of them slides.
///     x[12544*i0 + 224*i1 + 112*i3], i3 < 3: a step of i1 is two of i3's three, one of i0 is 112
bool slides(const Program& stages, const TensorExpr& e, size_t a);

}  // namespace tilewright
