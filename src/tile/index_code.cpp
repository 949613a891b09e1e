#include "tile/index_code.h"

#include <algorithm>

#include "base/error.h"

namespace tilewright {

IndexCode::IndexCode(Expr e, const Bindings& bindings) {
    const auto is_name = [](Var v) { return v.kind == VarKind::Symbol || v.kind == VarKind::Scalar; };
    const Expr bound = substitute(e, [&](Var v) -> std::optional<Expr> {
        if (!is_name(v)) return std::nullopt;
        const auto it = bindings.find(v);
        TW_CHECK(it != bindings.end(), "{} has no value", Expr::var(v).text());
        return Expr(it->second);
    });
    constant_ = bound.constant();
    for (const Term& t : bound.terms()) {
        const Atom& first = *t.atoms[0];
        if (t.atoms.size() == 1 && first.kind == Atom::Kind::Var && first.var.kind == VarKind::Axis) {
            axes_.emplace_back(first.var.id, t.coefficient);
            continue;
        }
        Product p;
        p.coefficient = t.coefficient;
        for (const Atom* a : t.atoms) {
            Factor f;
            f.kind = a->kind;
            f.var = a->var;
            if (a->kind != Atom::Kind::Var) {
                f.a = std::make_shared<const IndexCode>(a->a, bindings);
                f.b = std::make_shared<const IndexCode>(a->b, bindings);
            }
            p.factors.push_back(std::move(f));
        }
        products_.push_back(std::move(p));
    }
}

int64_t IndexCode::at(std::span<const int64_t> axes, LoadSource* loads) const {
    int64_t sum = constant_;
    for (const auto& [a, coefficient] : axes_) sum += coefficient * axes[a];
    for (const Product& p : products_) {
        int64_t v = p.coefficient;
        for (const Factor& f : p.factors) {
            if (f.kind == Atom::Kind::Var) {
                v *= f.var.kind == VarKind::Axis ? axes[f.var.id] : loads->loaded(f.var.id);
                continue;
            }
            const int64_t a = f.a->at(axes, loads), b = f.b->at(axes, loads);
            v *= f.kind == Atom::Kind::FloorDiv ? floor_div(a, b)
                 : f.kind == Atom::Kind::Mod    ? floor_mod(a, b)
                 : f.kind == Atom::Kind::Min    ? std::min(a, b)
                                                : std::max(a, b);
        }
        sum += v;
    }
    return sum;
}

std::vector<IndexCode> index_codes(std::span<const Expr> exprs, const Bindings& bindings) {
    std::vector<IndexCode> out;
    for (const Expr& e : exprs) out.emplace_back(e, bindings);
    return out;
}

}  // namespace tilewright
