#include "tile/gpu_index.h"

#include <numeric>

#include "base/error.h"

namespace tilewright::gpu {

Var var_of(Expr variable) {
    const auto v = variable.as_var();
    TW_CHECK(v.has_value(), "{} is no variable", variable.text());
    return *v;
}

Expr IndexVariables::add(std::string_view, Interval range) {
    ranges_.axes.push_back(range);
    return axis(ranges_.axes.size() - 1);
}

int64_t IndexVariables::multiple(Expr e) {
    const auto of_atom = [](const Atom& a) -> int64_t {
        if (a.kind == Atom::Kind::Min || a.kind == Atom::Kind::Max) return std::gcd(multiple(a.a), multiple(a.b));
        if (a.kind == Atom::Kind::Mod) return std::gcd(multiple(a.a), multiple(a.b));
        return 1;
    };
    int64_t out = e.constant();
    for (const Term& t : e.terms()) {
        int64_t factor = t.coefficient;
        for (const Atom* a : t.atoms) factor *= of_atom(*a);
        out = std::gcd(out, factor);
    }
    return out < 0 ? -out : out;
}

AxisRange narrowed(const AxisRange& outer, Expr counter, int64_t step, const IndexVariables& v) {
    AxisRange r = outer;
    r.whole = false;
    r.lo = v.simplified(outer.lo + counter * step);
    r.hi = v.nonnegative(outer.hi - r.lo - step) ? r.lo + step : v.simplified(min(outer.hi, r.lo + step));
    r.most = min(outer.most, step);
    if (!r.most.is_constant()) r.most = step;
    return r;
}

AxisRange part_of_sum(AxisRange r) {
    r.whole = true;
    r.begin = r.lo;
    r.end = r.hi;
    return r;
}

}  // namespace tilewright::gpu
