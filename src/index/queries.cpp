// Queries of expressions: variables, substitution, evaluation.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "index/expr_parts.h"

namespace tilewright {

using namespace parts;

Expr substitute(Expr e, const std::function<std::optional<Expr>(Var)>& f) {
    if (e.is_constant()) return e;
    return map_atoms(e, [&](const Atom& a) -> Expr {
        if (a.kind == Atom::Kind::Var) {
            if (auto r = f(a.var)) return *r;
            return Expr::var(a.var);
        }
        return rebuild(a, substitute(a.a, f), substitute(a.b, f));
    });
}

Expr substitute_axes(Expr e, std::span<const Expr> axes) {
    return substitute(e, [&](Var v) -> std::optional<Expr> {
        if (v.kind == VarKind::Axis && v.id < axes.size()) return axes[v.id];
        return std::nullopt;
    });
}

bool uses(Expr e, Var v) {
    bool found = false;
    visit_vars(e, [&](Var u) { found = found || u == v; });
    return found;
}

std::vector<Expr> plain_axes(size_t n, size_t first) {
    std::vector<Expr> out;
    for (size_t k = 0; k < n; ++k) out.push_back(axis(first + k));
    return out;
}

std::vector<Var> variables(Expr e) {
    constexpr size_t kFew = 16;
    std::vector<Var> out;
    std::set<Var> seen;  // the same variables as a set, used when there are many
    visit_vars(e, [&](Var u) {
        if (out.size() == kFew && seen.empty()) seen.insert(out.begin(), out.end());
        if (seen.empty() ? std::find(out.begin(), out.end(), u) == out.end() : seen.insert(u).second) out.push_back(u);
    });
    return out;
}

std::optional<Linear> linear_in(Expr e, Var v) {
    std::vector<Term> with, without;
    int64_t with_constant = 0;
    for (const Term& t : e.terms()) {
        Term rest = t;
        int count = 0;
        std::erase_if(rest.atoms, [&](const Atom* a) {
            if (a->kind == Atom::Kind::Var && a->var == v) {
                ++count;
                return true;
            }
            return false;
        });
        for (const Atom* a : rest.atoms)
            if (a->kind != Atom::Kind::Var && (uses(a->a, v) || uses(a->b, v))) return std::nullopt;
        if (count > 1) return std::nullopt;
        if (count == 0)
            without.push_back(t);
        else if (rest.atoms.empty())
            with_constant = checked_add(with_constant, rest.coefficient);
        else
            with.push_back(std::move(rest));
    }
    return Linear{make(with_constant, std::move(with)), make(e.constant(), std::move(without))};
}

std::vector<std::optional<Expr>> axis_coefficients(Expr e, size_t axes) {
    struct Sum {
        bool linear = true;
        int64_t constant = 0;
        std::vector<Term> terms;
    };
    std::vector<Sum> sums(axes);
    const auto is_axis = [&](Var v) { return v.kind == VarKind::Axis && v.id < axes; };
    const auto hides = [&](Var v) {
        if (is_axis(v)) sums[v.id].linear = false;
    };
    for (const Term& t : e.terms())
        for (size_t k = 0; k < t.atoms.size(); ++k) {
            const Atom& a = *t.atoms[k];
            if (a.kind != Atom::Kind::Var) {
                visit_vars(a.a, hides);
                visit_vars(a.b, hides);
                continue;
            }
            if (!is_axis(a.var)) continue;
            Sum& sum = sums[a.var.id];
            if (t.atoms.size() == 1) {
                sum.constant = checked_add(sum.constant, t.coefficient);
                continue;
            }
            Term rest = t;
            rest.atoms.erase(rest.atoms.begin() + static_cast<std::ptrdiff_t>(k));
            for (const Atom* other : rest.atoms)
                if (other->kind == Atom::Kind::Var && other->var == a.var) sum.linear = false;
            sum.terms.push_back(std::move(rest));
        }
    std::vector<std::optional<Expr>> out(axes);
    for (size_t k = 0; k < axes; ++k)
        if (sums[k].linear) out[k] = make(sums[k].constant, std::move(sums[k].terms));
    return out;
}

Ranges Ranges::of_extents(std::span<const Expr> extents) {
    Ranges r;
    for (Expr e : extents) r.axes.push_back({Expr(0), e - 1});
    return r;
}

int64_t evaluate(Expr e, const Env& env) {
    const auto value_of = [&](const Atom& a) -> int64_t {
        switch (a.kind) {
            case Atom::Kind::Var: {
                if (a.var.kind == VarKind::Axis && a.var.id < env.axes.size()) return env.axes[a.var.id];
                if (a.var.kind == VarKind::Load && a.var.id < env.loads.size()) return env.loads[a.var.id];
                if (env.names != nullptr && (a.var.kind == VarKind::Symbol || a.var.kind == VarKind::Scalar))
                    if (auto v = (*env.names)(a.var)) return *v;
                internal_error(__FILE__, __LINE__, "variable is bound", a.text);
            }
            case Atom::Kind::FloorDiv:
                return floor_div(evaluate(a.a, env), evaluate(a.b, env));
            case Atom::Kind::Mod:
                return floor_mod(evaluate(a.a, env), evaluate(a.b, env));
            case Atom::Kind::Min:
                return std::min(evaluate(a.a, env), evaluate(a.b, env));
            case Atom::Kind::Max:
                return std::max(evaluate(a.a, env), evaluate(a.b, env));
        }
        return 0;
    };
    int64_t sum = e.constant();
    for (const Term& t : e.terms()) {
        int64_t p = t.coefficient;
        for (const Atom* a : t.atoms) p = checked_mul(p, value_of(*a));
        sum = checked_add(sum, p);
    }
    return sum;
}

std::string to_string(std::span<const Expr> exprs) {
    std::string s = "[";
    for (size_t i = 0; i < exprs.size(); ++i) s += (i > 0 ? ", " : "") + exprs[i].text();
    return s + "]";
}

}  // namespace tilewright
