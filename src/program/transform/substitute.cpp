#include "program/transform/substitute.h"

#include <algorithm>

#include "program/analysis/dynamic.h"
#include "program/transform/tidy.h"

namespace tilewright {

namespace {

template <class... F>
struct Overloaded : F... {
    using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

void add_names_of(const Program& program, std::set<Var>& names) {
    for (const Value& v : program.values)
        for (const Expr e : v.shape) add_names(e, names);
    for (const Primitive& p : program.primitives) names.merge(names_used(p));
    for (const Requirement& r : program.requirements) {
        add_names(r.a, names);
        add_names(r.b, names);
    }
}

std::function<Expr(Expr)> substitution(const std::map<Var, Expr>& by) {
    return [&by](Expr e) {
        return substitute(e, [&](Var v) -> std::optional<Expr> {
            const auto it = by.find(v);
            if (it == by.end()) return std::nullopt;
            return it->second;
        });
    };
}

std::shared_ptr<const Program> substituted(const std::shared_ptr<const Program>& program,
                                           const std::map<Var, Expr>& by) {
    return program ? std::make_shared<const Program>(substitute_names(*program, by)) : program;
}

}  // namespace

void add_names(Expr e, std::set<Var>& names) {
    for (const Var v : variables(e))
        if (v.kind == VarKind::Symbol || v.kind == VarKind::Scalar) names.insert(v);
}

std::set<Var> names_used(const Primitive& primitive) {
    std::set<Var> names;
    std::visit(Overloaded{[&](const TensorExpr& e) {
                              for (const Expr x : e.extents) add_names(x, names);
                              map_indices(e, [&](Expr x) {
                                  add_names(x, names);
                                  return x;
                              });
                          },
                          [&](const If& branch) {
                              add_names_of(*branch.then_branch, names);
                              add_names_of(*branch.else_branch, names);
                          },
                          [&](const Loop& loop) {
                              if (loop.trip_count) add_names(*loop.trip_count, names);
                              add_names_of(*loop.body, names);
                          },
                          [](const Opaque&) {}, [](const ReadScalar&) {}},
               primitive.kind);
    return names;
}

std::set<Var> names_of(const Program& program) {
    std::set<Var> names;
    for (const Value& v : program.values)
        for (const Expr d : v.shape) add_names(d, names);
    for (const Primitive& p : program.primitives) names.merge(names_used(p));
    return names;
}

TensorExpr map_exprs(const TensorExpr& expr, const std::function<Expr(Expr)>& f) {
    TensorExpr out = map_indices(expr, f);
    for (Expr& e : out.extents) e = f(e);
    return out;
}

void substitute_names(Primitive& primitive, const std::map<Var, Expr>& by) {
    const auto f = substitution(by);
    std::visit(Overloaded{[&](TensorExpr& e) { e = map_exprs(e, f); },
                          [&](If& branch) {
                              branch.then_branch = substituted(branch.then_branch, by);
                              branch.else_branch = substituted(branch.else_branch, by);
                          },
                          [&](Loop& loop) {
                              if (loop.trip_count) loop.trip_count = f(*loop.trip_count);
                              loop.body = substituted(loop.body, by);
                          },
                          [](Opaque&) {}, [](ReadScalar&) {}},
               primitive.kind);
}

Program substitute_names(const Program& program, const std::map<Var, Expr>& by) {
    Program out = program;
    if (by.empty()) return out;
    const auto f = substitution(by);
    for (Value& v : out.values)
        for (Expr& e : v.shape) e = f(e);
    for (Primitive& p : out.primitives) substitute_names(p, by);
    substitute_names(out.requirements, by);
    std::erase_if(out.at_most, [&](const auto& bound) { return by.count(bound.first) != 0; });
    std::erase_if(out.assumed, [&](const auto& size) { return by.count(size.first) != 0; });
    return out;
}

std::optional<Program> at_sizes(const Program& stages, const Bindings& sizes) {
    std::map<Var, Expr> by;
    for (const Var v : names_of(stages)) {
        const auto it = sizes.find(v);
        by.emplace(v, it != sizes.end() ? it->second : assumed_value(Expr::var(v), stages.assumed));
    }
    if (by.empty()) return stages;
    Program out = substitute_names(stages, by);
    const auto holds_something = [](const std::vector<Expr>& extents) {
        return std::all_of(extents.begin(), extents.end(), [](Expr x) { return x.is_constant() && x.constant() > 0; });
    };
    for (const Value& v : out.values)
        if (!holds_something(v.shape)) return std::nullopt;
    for (Primitive& p : out.primitives) {
        TensorExpr* e = p.expr();
        if (e == nullptr || !holds_something(e->extents)) return std::nullopt;
        *e = tidy(*e);
    }
    return out;
}

void substitute_names(std::vector<Requirement>& requirements, const std::map<Var, Expr>& by) {
    if (by.empty()) return;
    const auto replaced = substitution(by);
    const auto f = [&](Expr e) {
        const std::vector<Var> names = variables(e);
        return std::any_of(names.begin(), names.end(), [&](Var v) { return by.count(v) != 0; }) ? replaced(e) : e;
    };
    std::vector<Requirement> out;
    for (Requirement& r : requirements) {
        r.a = f(r.a);
        r.b = f(r.b);
        if (r.a == r.b || (r.a.is_constant() && r.b.is_constant() && r.holds(r.a.constant(), r.b.constant()))) continue;
        if (std::none_of(out.begin(), out.end(), [&](const Requirement& o) { return o.is_about(r); }))
            out.push_back(std::move(r));
    }
    requirements = std::move(out);
}

}  // namespace tilewright
