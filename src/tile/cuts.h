#pragma once
// Cut points: where the conditions of a stage change along its axes.
//
// A concatenation of 64 and 32 channels reads one operand where i0 < 64 and another elsewhere. A 3-wide window padded
// by 1 needs its checks only in the first and the last column. Loops cut at such points have constant conditions in
// (nearly) all of their code:
//     for i0 < 96: select(i0 < 64, x[i0] when i0 < 64, y[i0 - 64] when i0 >= 64)
//     -> for i0 < 64: x[i0];  for 64 <= i0 < 96: y[i0 - 64]

#include <optional>
#include <utility>
#include <vector>

#include "program/program.h"

namespace tilewright {

struct CutQuestion {
    const TensorExpr* expr = nullptr;
    const Ranges* ranges = nullptr;
    std::vector<bool> may_cut;  ///< per spatial axis
    std::vector<bool> checked;  ///< per access: its conditions are evaluated elsewhere
    size_t tile_points = 1;     ///< copies of the body in one piece of code (unrolling)
    /// The vectorised axis, `lanes` points at a time, if any. A padded edge of this axis is one vector wide, under a
    /// mask: a row of 56 with 16 lanes is cut into 16, 32 and 8 points (four vectors), not into 1, 48 and 7 (five).
    std::optional<size_t> vector_axis;
    int64_t lanes = 1;
};

/// Returns the cuts of each axis, ascending: constants first, then expressions over symbols. A cut c separates the
/// points below c from those at and above c. Empty where no condition changes, or where the code would grow too much.
std::vector<std::vector<Expr>> choose_cuts(const CutQuestion& question);

/// The share of the body that the subranges of a cut loop evaluate.
struct Needed {
    std::vector<double> nodes;  ///< per node of the body: the share of the stage's points that evaluate it
    /// Per access and axis: the share of the axis that is read. Empty: all of it.
    std::vector<std::vector<double>> accesses;
};
/// `extents`: of the axes. `cuts`: points per axis, ascending. A Select by a linear condition on axes (from a
/// concatenation, or a rotation of windows) evaluates one side in a box of subranges that lies on that side, and both
/// sides elsewhere. Returns nothing where no Select depends on the index alone.
std::optional<Needed> needed_between(const TensorExpr& e, const std::vector<int64_t>& extents,
                                     const std::vector<std::vector<int64_t>>& cuts);
/// Returns the points at which the condition of some Select changes, per axis, ascending; of a condition on several
/// axes, where it begins to hold for some and for all points of the others. With these cuts every Select between ranges
/// of one axis is resolved at compile time.
std::vector<std::vector<int64_t>> choice_cuts(const TensorExpr& e);

/// Moves a cut inside the first or the last vector of an axis of `extent` points to the boundary of that vector.
/// Returns any other cut unchanged.
int64_t cut_beside_vectors(int64_t cut, int64_t extent, int64_t lanes);

/// A comparison of indices and integers: `expression` >= 0, or its negation if `negated`.
struct IndexComparison {
    Expr expression;
    bool negated = false;
};
std::optional<IndexComparison> index_condition(const ScalarBody& body, ScalarId id);

}  // namespace tilewright
