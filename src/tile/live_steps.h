#pragma once
// Steps of a loop that leave every result as it is, since their points are masked out (causal attention, windows).
//
//     c[m,n] = m - n >= 0 ? x[m,n] : -inf    r[m] = max_n c    p[m,n] = exp(c - r)    s[m] = sum_n p    e = sum_n p v
//
// Where m - n < 0, c is -infinity and p is 0: neither changes the maximum or a sum. A block of rows from `lo` to `hi`
// needs the steps of n up to hi - 1 alone. There is no pattern for masks: which values are -infinity or 0 at a masked
// point follows from the stages' expressions. (0 times infinity counts as 0: numbers of v behind a mask are not read.)

#include <optional>
#include <vector>

#include "tile/tile.h"
#include "tile/walk.h"

namespace tilewright {

/// The conditions, over the kernel's axes, of which each must be >= 0 at points of the loop that count. They move by
/// one along the loop's axis. Nothing where a step may change a result whatever the conditions are.
///     m - n                    causal
///     m - n, n - m + 255       a window of 256
std::vector<Expr> live_conditions(const TileProgram& program, const Walk& walk, const TreePath& loop);

/// Current range of a kernel axis.
struct AxisBounds {
    Expr lo, hi;
};
/// Points of the loop's axis outside of [begin, end) do not count while the other axes are in these ranges.
struct LiveRange {
    std::optional<Expr> begin, end;
};
/// `conditions`: of live_conditions.
LiveRange live_range(const std::vector<Expr>& conditions, size_t axis, const std::vector<AxisBounds>& ranges);

}  // namespace tilewright
