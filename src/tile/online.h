#pragma once
// Reductions that go on while their maximum is still being found: the algebra behind online softmax.
//
//     r[m] = max_n x[m,n]     p[m,n] = exp(x[m,n] - r[m])     s[m] = sum_n p[m,n]     e[m,h] = sum_n p[m,n] * v[n,h]
//
// A term in which the maximum stands as exp(... - r) alone, and to the first power, is *scaled* by it: with r + d in
// r's place it is exp(-d) times what it was. So is every sum of such terms, and a sum that was begun with the maximum
// so far goes on after a factor exp(old - new). Nothing here knows softmax or attention: s, e, and p itself are found
// to be scaled by looking at their expressions, in whatever spelling they have.

#include <optional>
#include <set>
#include <vector>

#include "tile/tile.h"

namespace tilewright {

/// Which maximum scales a stage's result (before its epilogue), and which element of it, over the stage's axes.
struct OnlineScale {
    ValueId maximum;
    std::vector<Expr> index;
};

/// Per stage: by which of `maxima` it is scaled; nothing where it is not, or reads one in another way.
IndexVector<PrimitiveId, std::optional<OnlineScale>> online_scales(const Program& stages,
                                                                   const std::set<ValueId>& maxima);

/// The expression of a scaled sum with one more access, the last: to the factor for what was summed up before.
TensorExpr with_factor(TensorExpr sum, const OnlineScale& scale);

/// The results of Computes that are marked online.
std::set<ValueId> online_maxima(const TileProgram& program);

}  // namespace tilewright
