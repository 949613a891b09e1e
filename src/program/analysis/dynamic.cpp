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

namespace {

struct Bounds {
    std::optional<int64_t> lo, hi;
};
using Limit = std::optional<int64_t>;

Limit plus(Limit a, Limit b) {
    int64_t sum = 0;
    if (!a || !b || __builtin_add_overflow(*a, *b, &sum)) return std::nullopt;
    return sum;
}
Limit times(Limit a, Limit b) {
    int64_t n = 0;
    if (!a || !b || __builtin_mul_overflow(*a, *b, &n)) return std::nullopt;
    return n;
}

Bounds bounds_of(Expr e, const std::map<Var, int64_t>& at_most);

Bounds bounds_of(const Atom& atom, const std::map<Var, int64_t>& at_most) {
    if (atom.kind == Atom::Kind::Var) {
        if (atom.var.kind != VarKind::Symbol) return {};
        const auto it = at_most.find(atom.var);
        return {0, it == at_most.end() ? Limit() : Limit(it->second)};
    }
    const Bounds a = bounds_of(atom.a, at_most), b = bounds_of(atom.b, at_most);
    const bool natural = a.lo && *a.lo >= 0, divides = b.lo && *b.lo >= 1;
    switch (atom.kind) {
        case Atom::Kind::FloorDiv:
            if (!natural || !divides) return {};
            return {b.hi ? *a.lo / *b.hi : 0, a.hi ? Limit(*a.hi / *b.lo) : std::nullopt};
        case Atom::Kind::Mod:
            if (!divides) return {};
            return {0, b.hi ? Limit(*b.hi - 1) : natural ? a.hi : std::nullopt};
        case Atom::Kind::Min:
            return {a.lo && b.lo ? Limit(std::min(*a.lo, *b.lo)) : std::nullopt, a.hi && b.hi
                                                                                     ? Limit(std::min(*a.hi, *b.hi))
                                                                                 : a.hi ? a.hi
                                                                                        : b.hi};
        default:
            return {a.lo && b.lo ? Limit(std::max(*a.lo, *b.lo))
                    : a.lo       ? a.lo
                                 : b.lo,
                    a.hi && b.hi ? Limit(std::max(*a.hi, *b.hi)) : std::nullopt};
    }
}

/// The product of the atoms; nothing is known where a factor may be negative.
Bounds bounds_of(Expr e, const std::map<Var, int64_t>& at_most) {
    Bounds sum{e.constant(), e.constant()};
    for (const Term& t : e.terms()) {
        Bounds product{1, 1};
        for (const Atom* a : t.atoms) {
            const Bounds x = bounds_of(*a, at_most);
            if (!x.lo || *x.lo < 0) return {};
            product = {times(product.lo, x.lo), times(product.hi, x.hi)};
        }
        const Limit lo = times(t.coefficient, product.lo), hi = times(t.coefficient, product.hi);
        sum = {plus(sum.lo, t.coefficient < 0 ? hi : lo), plus(sum.hi, t.coefficient < 0 ? lo : hi)};
    }
    return sum;
}

}  // namespace

bool sizes_assumed(const Program& stages, Expr e) {
    const std::vector<Var> names = variables(e);
    return std::all_of(names.begin(), names.end(), [&](Var v) { return stages.assumed.count(v) != 0; });
}

std::optional<int64_t> most_value(Expr e, const std::map<Var, int64_t>& at_most) { return bounds_of(e, at_most).hi; }

double assumed_points(std::span<const Expr> extents, const Bindings& known) {
    double points = 1;
    for (const Expr x : extents) points *= static_cast<double>(assumed_extent(x, known));
    return points;
}

}  // namespace tilewright
