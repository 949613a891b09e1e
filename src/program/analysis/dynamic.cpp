#include "program/analysis/dynamic.h"

#include <algorithm>

namespace tilewright {

int64_t assumed_value(Expr e, const Bindings& known) {
    if (e.is_constant()) return e.constant();
    Bindings all = known;
    for (const Var v : variables(e)) all.try_emplace(v, kAssumedExtent);
    return evaluate(e, all);
}

int64_t assumed_extent(Expr e, const Bindings& known) { return std::max<int64_t>(1, assumed_value(e, known)); }

double assumed_points(std::span<const Expr> extents, const Bindings& known) {
    double points = 1;
    for (const Expr x : extents) points *= static_cast<double>(assumed_extent(x, known));
    return points;
}

}  // namespace tilewright
