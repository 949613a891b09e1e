#pragma once
// Reductions that go on while their maximum is still being found: the algebra behind online softmax.
//
//     r[m] = max_n x[m,n]     p[m,n] = exp(x[m,n] - r[m])     s[m] = sum_n p[m,n]     e[m,h] = sum_n p[m,n] * v[n,h]
//
// A term in which the maximum stands as exp(... - r) alone, and to the first power, is *scaled* by it: with r + d in
// r's place it is exp(-d) times what it was. So is every sum of such terms, and a sum that was begun with the maximum
// so far goes on after a factor exp(old - new). Softmax and attention are not recognised as such: s, e, and p itself
// are found to be scaled from their expressions, however these are written.

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "tile/tile.h"
#include "tile/walk.h"

namespace tilewright {

/// Which maximum scales a stage's result (before its epilogue), and which element of it, over the stage's axes.
struct OnlineScale {
    ValueId maximum;
    std::vector<Expr> index;
};

/// Per stage: by which of `maxima` it is scaled; nothing where it is not, or reads one in another way.
IndexVector<PrimitiveId, std::optional<OnlineScale>> online_scales(const Program& stages,
                                                                   const std::set<ValueId>& maxima);

/// The results of Computes that are marked online.
std::set<ValueId> online_maxima(const TileProgram& program);

/// A maximum that is computed online: its stage, and the place of its Compute.
struct OnlineMaximum {
    PrimitiveId stage;
    TreePath at;
};
/// Of each result of such a Compute.
std::map<ValueId, OnlineMaximum> online_stages(const TileProgram& program, const Walk& walk);

/// A sum that meets, inside the loop in which its maximum changes, what it has summed up with an older maximum.
struct RescaledSum {
    TensorExpr expr;  ///< with one more access, the last: to the factor exp(old - new) of what was summed up before
    ValueId maximum;
};
/// The sum of the Compute of `stage` at `path`, scaled by `scale`; nothing where its maximum is final there.
std::optional<RescaledSum> rescaled_sum(const TileProgram& program, const Walk& walk,
                                        const std::map<ValueId, OnlineMaximum>& online,
                                        const std::optional<OnlineScale>& scale, PrimitiveId stage,
                                        const TreePath& path);

}  // namespace tilewright
