#include "ops/shape_math.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace tilewright {

Expr is_negative(Expr e) {
    if (prove_nonnegative(e, {})) return 0;
    if (prove_nonnegative(-1 - e, {})) return 1;
    return max(0, min(1, -e));
}

Expr is_zero(Expr e) {
    if (e.is_constant()) return e.is_constant(0) ? 1 : 0;
    if (prove_positive(e, {}) || prove_positive(-e, {})) return 0;
    return 1 - min(1, max(e, -e));
}

bool reads_data(Expr e) {
    for (const Var v : variables(e))
        if (v.kind == VarKind::Scalar) return true;
    return false;
}

Expr within_reach(Expr bound) {
    if (bound.is_constant()) return std::clamp(bound.constant(), -kFar, kFar);
    return reads_data(bound) ? max(-kFar, min(kFar, bound)) : bound;
}

std::vector<Expr> positive_axes(Builder& b, std::vector<Expr> axes, size_t rank) {
    const auto r = static_cast<int64_t>(rank);
    std::vector<int64_t> known;
    bool all_known = true;
    for (Expr& a : axes) {
        if (a.is_constant()) {
            known.push_back(b.normalize_axis(a.constant(), rank));
            a = known.back();
        } else {
            all_known = false;
            const std::string outside = fmt::format("axis {} is outside [{}, {}]", a.text(), -r, r - 1);
            b.require_at_least(r - 1, a, outside, "highest axis and axis");
            b.require_at_least(a, -r, outside, "axis and lowest axis");
            a = a + is_negative(a) * r;
        }
    }
    b.normalize_axes(known, rank);  // rejects duplicate axes
    if (all_known) return axes;
    for (size_t i = 0; i < axes.size(); ++i)
        for (size_t k = 0; k < i; ++k) require_not_zero(b, axes[i] - axes[k], "distance of two axes");
    return axes;
}

void require_not_zero(Builder& b, Expr e, std::string_view what) {
    b.require_at_least(max(e, -e), 1, fmt::format("{} is 0", what), what);
}

Dims by_axis(std::span<const Expr> axes, std::span<const Expr> values, const Dims& fallback) {
    TW_CHECK(axes.size() == values.size());
    Dims out;
    for (size_t k = 0; k < fallback.size(); ++k) {
        Expr chosen = 0, others = 1;
        for (size_t n = 0; n < axes.size(); ++n) {
            const Expr here = is_zero(axes[n] - static_cast<int64_t>(k));
            chosen = chosen + here * values[n];
            others = others - here;
        }
        out.push_back(chosen + others * fallback[k]);
    }
    return out;
}

}  // namespace tilewright
