#include "schedule/boxes.h"

#include <algorithm>

#include "program/analysis/dynamic.h"

namespace tilewright {

int64_t guessed_extent(const Program& stages, Expr e) {
    if (e.is_constant()) return std::max<int64_t>(1, e.constant());
    const std::vector<Var> names = variables(e);
    const bool given = std::any_of(names.begin(), names.end(), [&](Var v) { return stages.assumed.count(v) != 0; });
    return std::clamp<int64_t>(assumed_value(e, stages.assumed), given ? 1 : kAssumedExtent, int64_t{1} << 20);
}

int64_t box_bytes(const Program& stages, const Access& a, const std::vector<int64_t>& extents) {
    int64_t elements = 1;
    Ranges ranges;
    for (const int64_t n : extents) ranges.axes.push_back({Expr(0), Expr(n - 1)});
    for (const Expr& i : a.index) {
        int64_t size = 1;
        bool linear = true;
        for (const Var v : variables(i)) {
            if (v.kind != VarKind::Axis) continue;
            const auto term = linear_in(i, v);  // in a nonlinear index every step counts as one element
            linear = linear && term;
            const bool known = term && term->coefficient.is_constant();
            size += (known ? std::abs(term->coefficient.constant()) : 1) * (extents[v.id] - 1);
        }
        if (!linear) {  // quotients and remainders, as of packed weights: [i // 32, k, i % 32]
            const Interval range = bounds(i, ranges);
            if (range.lo && range.hi && range.lo->is_constant() && range.hi->is_constant())
                size = range.hi->constant() - range.lo->constant() + 1;
        }
        elements *= size;
    }
    return elements * static_cast<int64_t>(byte_size(stages.values[a.value].dtype));
}

}  // namespace tilewright
