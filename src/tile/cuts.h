#pragma once
// Where the conditions of a stage change along its axes.
//
// A concatenation of 64 and 32 channels reads one operand below i0 = 64 and another from there on; a 3-wide window
// padded by 1 needs its checks in the first and the last column only. Loops cut there have constant conditions in
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
    std::vector<bool> checked;  ///< per access: its conditions are decided elsewhere
    size_t tile_points = 1;     ///< how often the body is written out in one piece of code
    /// The axis whose points are computed `lanes` at a time, if any. A padded edge there is as wide as a vector, under
    /// a mask: rows of 56 with lanes of 16 are 16, 32 and 8 points, four vectors, not 1, 48 and 7, which are five.
    std::optional<size_t> vector_axis;
    int64_t lanes = 1;
};

/// Per axis, ascending: constants, then expressions over symbols. A cut c separates points below c from c on. Empty
/// where there are none, or where the code would grow too much.
std::vector<std::vector<Expr>> choose_cuts(const CutQuestion& question);

/// Where loops are cut at such points, each piece evaluates a part of the body.
struct Needed {
    std::vector<double> nodes;  ///< per node of the body: at which share of the stage's points it is evaluated
    /// Per access and axis: over which share of the axis it is read. Empty: everywhere.
    std::vector<std::vector<double>> accesses;
};
/// `extents`: of the axes; `cuts`: points per axis, ascending. Choices between ranges of one axis (a concatenation's)
/// are decided where every piece lies on one side; both sides are evaluated where one does not. Nothing where no choice
/// depends on the index alone.
std::optional<Needed> needed_between(const TensorExpr& e, const std::vector<int64_t>& extents,
                                     const std::vector<std::vector<int64_t>>& cuts);
/// The points at which some choice changes, per axis, ascending: with these every choice between ranges of one axis is
/// decided.
std::vector<std::vector<int64_t>> choice_cuts(const TensorExpr& e);

/// A cut within the first or the last vector of an axis of `extent` points, moved to where that vector ends or begins;
/// any other cut as it is.
int64_t cut_beside_vectors(int64_t cut, int64_t extent, int64_t lanes);

/// A comparison of indices and integers: it is true where `expression` >= 0 or, `negated`, where it is not.
struct IndexComparison {
    Expr expression;
    bool negated = false;
};
std::optional<IndexComparison> index_condition(const ScalarBody& body, ScalarId id);

}  // namespace tilewright
