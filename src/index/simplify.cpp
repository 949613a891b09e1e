// Bounds, proofs and simplification under ranges.

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "index/expr.h"
#include "index/expr_parts.h"

namespace tilewright {

using namespace parts;

namespace {

bool is_dimension_atom(const Atom& a);

bool is_dimension_atom(const Atom& a) {
    return a.kind == Atom::Kind::Var ? a.var.kind == VarKind::Symbol : symbols_only(a.a) && symbols_only(a.b);
}

bool uniform_nonnegative_anew(Expr e, int depth);

/// For a polynomial whose variables are symbols >= 1: shifts each by one; if all coefficients are >= 0 then the value
/// is >= 0. Results are memoised per thread, because models with dynamic sizes repeat the same few thousand queries.
bool uniform_nonnegative(Expr e, int depth) {
    if (e.is_constant()) return e.constant() >= 0;
    struct Hash {
        size_t operator()(const std::pair<Expr, int>& k) const {
            return k.first.hash() * 31 + static_cast<size_t>(k.second);
        }
    };
    constexpr size_t kMostAnswers = 1 << 18;
    thread_local std::unordered_map<std::pair<Expr, int>, bool, Hash> answers;
    const std::pair key(e, depth);
    if (const auto it = answers.find(key); it != answers.end()) return it->second;
    const bool answer = uniform_nonnegative_anew(e, depth);
    if (answers.size() >= kMostAnswers) answers.clear();
    answers.emplace(key, answer);
    return answer;
}

bool uniform_nonnegative_anew(Expr e, int depth) {
    // Compound atoms: replaced by a bound in the direction of their sign.
    for (const Term& t : e.terms()) {
        for (size_t i = 0; i < t.atoms.size(); ++i) {
            const Atom& a = *t.atoms[i];
            if (a.kind == Atom::Kind::Var) {
                if (a.var.kind != VarKind::Symbol) return false;
                continue;
            }
            if (depth > 6) return false;
            // A bound of one factor bounds the product only if the other factors are not negative.
            for (size_t j = 0; j < t.atoms.size(); ++j)
                if (j != i && !uniform_nonnegative(from_atom(*t.atoms[j]), depth + 1)) return false;
            const auto replaced = [&](Expr by) {
                Expr p = t.coefficient;
                for (size_t j = 0; j < t.atoms.size(); ++j) p = p * (j == i ? by : from_atom(*t.atoms[j]));
                return e - make(0, {t}) + p;
            };
            const bool low = t.coefficient > 0;
            switch (a.kind) {
                case Atom::Kind::Min:
                    if (!low)
                        return uniform_nonnegative(replaced(a.a), depth + 1) ||
                               uniform_nonnegative(replaced(a.b), depth + 1);
                    return uniform_nonnegative(replaced(a.a), depth + 1) &&
                           uniform_nonnegative(replaced(a.b), depth + 1);
                case Atom::Kind::Max:
                    if (low)
                        return uniform_nonnegative(replaced(a.a), depth + 1) ||
                               uniform_nonnegative(replaced(a.b), depth + 1);
                    return uniform_nonnegative(replaced(a.a), depth + 1) &&
                           uniform_nonnegative(replaced(a.b), depth + 1);
                case Atom::Kind::Mod:
                    if (!uniform_nonnegative(a.b - 1, depth + 1)) return false;
                    return uniform_nonnegative(replaced(low ? Expr(0) : a.b - 1), depth + 1);
                case Atom::Kind::FloorDiv: {
                    if (!a.b.is_constant() || a.b.constant() <= 0) {
                        if (!low || !uniform_nonnegative(a.b - 1, depth + 1) || !uniform_nonnegative(a.a, depth + 1))
                            return false;
                        return uniform_nonnegative(replaced(Expr(0)), depth + 1);
                    }
                    // (x - (b - 1)) / b <= x // b <= x / b : multiply the whole inequality by b
                    if (t.atoms.size() != 1) {
                        if (!low || !uniform_nonnegative(a.a, depth + 1)) return false;
                        return uniform_nonnegative(replaced(Expr(0)), depth + 1);
                    }
                    const Expr others = (e - make(0, {t})) * a.b;
                    const Expr bound = low ? a.a - (a.b - 1) : a.a;
                    if (uniform_nonnegative(others + bound * t.coefficient, depth + 1)) return true;
                    return low && uniform_nonnegative(a.a, depth + 1) &&
                           uniform_nonnegative(replaced(Expr(0)), depth + 1);
                }
                case Atom::Kind::Var:
                    break;
            }
        }
    }
    const Expr shifted = substitute(e, [](Var v) -> std::optional<Expr> { return Expr::var(v) + 1; });
    if (shifted.constant() < 0) return false;
    return std::all_of(shifted.terms().begin(), shifted.terms().end(), [](const Term& t) { return t.coefficient > 0; });
}

std::optional<Expr> bound(Expr e, const Ranges& ranges, bool low);

Interval atom_bounds(const Atom& a, const Ranges& ranges) {
    if (a.kind == Atom::Kind::Var) {
        const auto& table = a.var.kind == VarKind::Axis ? ranges.axes : ranges.loads;
        if (a.var.kind == VarKind::Symbol || a.var.kind == VarKind::Scalar) return {Expr::var(a.var), Expr::var(a.var)};
        return a.var.id < table.size() ? table[a.var.id] : Interval{};
    }
    if (is_dimension_atom(a) || (is_uniform(a.a) && is_uniform(a.b))) {
        const Expr e = from_atom(a);
        return {e, e};
    }
    Interval r;
    switch (a.kind) {
        case Atom::Kind::FloorDiv:
            if (!is_uniform(a.b) || !uniform_nonnegative(a.b - 1, 0)) return {};
            if (auto lo = bound(a.a, ranges, true)) r.lo = floor_div(*lo, a.b);
            if (auto hi = bound(a.a, ranges, false)) r.hi = floor_div(*hi, a.b);
            return r;
        case Atom::Kind::Mod:
            if (!is_uniform(a.b) || !uniform_nonnegative(a.b - 1, 0)) return {};
            return {Expr(0), a.b - 1};
        case Atom::Kind::Min: {
            const auto la = bound(a.a, ranges, true), lb = bound(a.b, ranges, true);
            const auto ha = bound(a.a, ranges, false), hb = bound(a.b, ranges, false);
            if (la && lb) r.lo = min(*la, *lb);
            if (ha && hb)
                r.hi = min(*ha, *hb);
            else if (ha || hb)
                r.hi = ha ? ha : hb;
            return r;
        }
        case Atom::Kind::Max: {
            const auto la = bound(a.a, ranges, true), lb = bound(a.b, ranges, true);
            const auto ha = bound(a.a, ranges, false), hb = bound(a.b, ranges, false);
            if (la && lb)
                r.lo = max(*la, *lb);
            else if (la || lb)
                r.lo = la ? la : lb;
            if (ha && hb) r.hi = max(*ha, *hb);
            return r;
        }
        case Atom::Kind::Var:
            break;
    }
    return {};
}

std::optional<Expr> bound(Expr e, const Ranges& ranges, bool low) {
    Expr sum = e.constant();
    for (const Term& t : e.terms()) {
        const bool want_low = (t.coefficient > 0) == low;
        Expr p = t.coefficient;
        size_t varying = 0;
        for (const Atom* a : t.atoms)
            if (!(a->kind == Atom::Kind::Var ? a->var.kind == VarKind::Symbol || a->var.kind == VarKind::Scalar
                                             : is_uniform(a->a) && is_uniform(a->b)))
                ++varying;
        for (const Atom* a : t.atoms) {
            const Interval b = atom_bounds(*a, ranges);
            const std::optional<Expr>& side = want_low ? b.lo : b.hi;
            if (!side) return std::nullopt;
            // A product of a varying atom with others keeps its order only when the others are >= 0.
            if (varying > 0 && t.atoms.size() > 1 && (!b.lo || !uniform_nonnegative(*b.lo, 0))) return std::nullopt;
            p = p * *side;
        }
        sum = sum + p;
    }
    return sum;
}

}  // namespace

Interval bounds(Expr e, const Ranges& ranges) { return {bound(e, ranges, true), bound(e, ranges, false)}; }

bool prove_nonnegative(Expr e, const Ranges& ranges) {
    if (e.is_constant()) return e.constant() >= 0;
    const auto lo = bound(e, ranges, true);
    return lo && uniform_nonnegative(*lo, 0);
}

namespace {

/// Joins two neighbouring digits of one number, where the weight of the upper digit is the weight of the lower times b:
///     b c (x // b) + c (x % b) -> c x        b c ((x // b) % m) + c (x % b) -> c (x % (b m))
/// Nothing if there are none.
std::optional<Expr> join_digits(Expr e) {
    for (const Term& low : e.terms()) {
        for (size_t i = 0; i < low.atoms.size(); ++i) {
            const Atom& remainder = *low.atoms[i];
            if (remainder.kind != Atom::Kind::Mod || !never_zero(remainder.b)) continue;
            Term weight = low;
            weight.atoms.erase(weight.atoms.begin() + static_cast<std::ptrdiff_t>(i));
            const Expr c = make(weight.atoms.empty() ? weight.coefficient : 0,
                                weight.atoms.empty() ? std::vector<Term>{} : std::vector<Term>{weight});
            const Expr quotient = floor_div(remainder.a, remainder.b);
            const Expr rest = e - make(0, {low});
            for (const Term& high : rest.terms()) {
                if (high.coefficient % low.coefficient != 0) continue;
                for (const Atom* digit : high.atoms) {
                    const bool top = from_atom(*digit) == quotient;
                    const bool inner = digit->kind == Atom::Kind::Mod && digit->a == quotient &&
                                       prove_nonnegative(digit->b - 1, {}) && prove_nonnegative(remainder.b - 1, {});
                    if (!top && !inner) continue;
                    const Expr upper = from_atom(*digit);
                    if (!(make(0, {high}) == c * remainder.b * upper)) continue;
                    const Expr joined = top ? remainder.a : mod(remainder.a, remainder.b * digit->b);
                    return rest - make(0, {high}) + c * joined;
                }
            }
        }
    }
    return std::nullopt;
}

Expr simplify_atoms(Expr e, const Ranges& ranges);

}  // namespace

Expr simplify(Expr e, const Ranges& ranges) {
    Expr s = simplify_atoms(e, ranges);
    while (const auto joined = join_digits(s)) s = simplify_atoms(*joined, ranges);
    return s;
}

namespace {

Expr simplify_atoms(Expr e, const Ranges& ranges) {
    if (e.is_constant()) return e;
    return map_atoms(e, [&](const Atom& atom) -> Expr {
        if (atom.kind == Atom::Kind::Var) {
            if (atom.var.kind == VarKind::Axis && atom.var.id < ranges.axes.size()) {
                const Interval& r = ranges.axes[atom.var.id];
                if (r.lo && r.hi && *r.lo == *r.hi) return *r.lo;  // an axis of one point
            }
            return Expr::var(atom.var);
        }
        const Expr a = simplify(atom.a, ranges), b = simplify(atom.b, ranges);
        const Expr rebuilt = rebuild(atom, a, b);
        const Atom* still = single_atom(rebuilt);
        if (still == nullptr || still->kind != atom.kind) {
            return rebuilt == from_atom(atom) ? rebuilt : simplify(rebuilt, ranges);
        }
        switch (still->kind) {
            case Atom::Kind::FloorDiv:
            case Atom::Kind::Mod: {
                if (!prove_positive(still->b, ranges)) break;
                const bool div = still->kind == Atom::Kind::FloorDiv;
                // The part of the numerator that stays inside one period: (64 i0 + i1) // 64 is handled on
                // construction; here: 0 <= a < b, or a in [q b, (q+1) b) for a constant q.
                const Interval r = bounds(still->a, ranges);
                if (r.lo && r.hi) {
                    if (still->b.is_constant() && r.lo->is_constant()) {
                        const int64_t q = floor_div(r.lo->constant(), still->b.constant());
                        if (prove_nonnegative(still->b * (q + 1) - 1 - *r.hi, {}))
                            return div ? Expr(q) : still->a - still->b * q;
                    } else if (prove_nonnegative(*r.lo, {}) && prove_nonnegative(still->b - 1 - *r.hi, {})) {
                        return div ? Expr(0) : still->a;
                    }
                }
                // (a + x) // b with a a multiple of g | b and 0 <= x < g drops x; a % b becomes (a' % (b/g)) g + x.
                if (still->b.is_constant() && still->a.terms().size() > 1) {
                    const int64_t c = still->b.constant();
                    for (const Term& pivot : still->a.terms()) {
                        const int64_t g = std::gcd(pivot.coefficient, c);
                        if (g <= 1 || g == c) continue;
                        Expr big = 0, small = 0;
                        for (const Term& t : still->a.terms()) {
                            const Expr piece = make(0, {t});
                            (t.coefficient % g == 0 ? big : small) += piece;
                        }
                        big += still->a.constant() - floor_mod(still->a.constant(), g);
                        small += floor_mod(still->a.constant(), g);
                        if (small.is_constant()) continue;
                        if (prove_nonnegative(small, ranges) && prove_less(small, g, ranges)) {
                            const Expr whole = divide_exactly(big, g);
                            if (div) return simplify(floor_div(whole, c / g), ranges);
                            return simplify(mod(whole, c / g) * g + small, ranges);
                        }
                    }
                }
                break;
            }
            case Atom::Kind::Min:
            case Atom::Kind::Max: {
                const bool is_min = still->kind == Atom::Kind::Min;
                if (prove_nonnegative(still->b - still->a, ranges)) return is_min ? still->a : still->b;
                if (prove_nonnegative(still->a - still->b, ranges)) return is_min ? still->b : still->a;
                break;
            }
            case Atom::Kind::Var:
                break;
        }
        return rebuilt;
    });
}

}  // namespace

}  // namespace tilewright
