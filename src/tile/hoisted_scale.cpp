#include "tile/hoisted_scale.h"

#include <algorithm>

#include "program/analysis/access.h"
#include "program/analysis/contraction.h"

namespace tilewright {

std::optional<HoistedScale> hoisted_scale(const TensorExpr& e, const Micro& micro, std::span<const size_t> loops) {
    const auto c = contraction(e);
    if (!c || !c->of_reals()) return std::nullopt;
    for (size_t k = 0; k < c->factors.size(); ++k) {
        const ScalarNode& factor = e.body[c->factors[k].node];
        if (factor.op != ScalarOp::Mul) continue;
        size_t first = loops.size();
        while (first > 0 && !moves_along(e, e.body, factor.b, loops[first - 1])) --first;
        const bool stepped = std::all_of(loops.begin(), loops.begin() + static_cast<std::ptrdiff_t>(first),
                                         [&](size_t a) { return micro.registers[a] == 1; });
        if (first > 0 && first < loops.size() && stepped) return HoistedScale{k, factor.a, factor.b, first};
    }
    return std::nullopt;
}

}  // namespace tilewright
