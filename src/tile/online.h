#pragma once
// Reductions that start before their maximum is final: the algebra behind online softmax.
//
//     r[m] = max_n x[m,n]     p[m,n] = exp(x[m,n] - r[m])     s[m] = sum_n p[m,n]     e[m,h] = sum_n p[m,n] * v[n,h]
//
// A term that contains the maximum r only as exp(... - r), to the first power, is *scaled* by it: replacing r by r + d
// multiplies the term by exp(-d). Sums of such terms are scaled as well. A sum that was started with an older maximum
// is corrected by the factor exp(old - new). There is no pattern for softmax or attention: s, e and p are found to be
// scaled from their expressions, in whatever form these are written.

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "tile/tile.h"
#include "tile/walk.h"

namespace tilewright {

/// The maximum that scales a stage's result (before its epilogue), and its element, over the stage's axes.
struct OnlineScale {
    ValueId maximum;
    std::vector<Expr> index;
};

/// Returns, per stage, the maximum of `maxima` that scales it; nothing where none does, or where the stage reads one of
/// `maxima` in another way.
IndexVector<PrimitiveId, std::optional<OnlineScale>> online_scales(const Program& stages,
                                                                   const std::set<ValueId>& maxima);

/// The results of Computes that are marked online.
std::set<ValueId> online_maxima(const TileProgram& program);

/// A maximum that is computed online: its stage, and the position of its Compute.
struct OnlineMaximum {
    PrimitiveId stage;
    TreePath at;
};
/// Returns the entry of each result of such a Compute.
std::map<ValueId, OnlineMaximum> online_stages(const TileProgram& program, const Walk& walk);

/// A sum with the correction of its partial result when the maximum changes inside the loop.
struct RescaledSum {
    TensorExpr expr;  ///< with one more access, the last: the factor exp(old - new) for the partial sum
    ValueId maximum;
};
/// Returns the sum of the Compute of `stage` at `path`, scaled by `scale`; nothing where its maximum is final there.
std::optional<RescaledSum> rescaled_sum(const TileProgram& program, const Walk& walk,
                                        const std::map<ValueId, OnlineMaximum>& online,
                                        const std::optional<OnlineScale>& scale, PrimitiveId stage,
                                        const TreePath& path);

}  // namespace tilewright
