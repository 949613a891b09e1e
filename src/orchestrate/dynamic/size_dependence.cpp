#include "orchestrate/dynamic/size_dependence.h"

#include <algorithm>

#include "index/expr_parts.h"
#include "program/transform/substitute.h"

namespace tilewright::dynamic {

namespace {

void add(Expr e, std::vector<Expr>& out) {
    if (e.is_constant()) return;
    if (is_uniform(e)) {
        if (std::find(out.begin(), out.end(), e) == out.end()) out.push_back(e);
        return;
    }
    for (const Term& t : e.terms())
        for (const Atom* a : t.atoms) {
            if (const Expr alone = parts::from_atom(*a); is_uniform(alone)) {
                add(alone, out);
            } else if (a->kind != Atom::Kind::Var) {
                add(a->a, out);
                add(a->b, out);
            }
        }
}

}  // namespace

std::vector<Expr> size_expressions(const Program& stages) {
    std::vector<Expr> out;
    for (const Value& v : stages.values)
        for (const Expr d : v.shape) add(d, out);
    for (const Primitive& p : stages.primitives)
        map_exprs(*p.expr(), [&](Expr e) {
            add(e, out);
            return e;
        });
    return out;
}

BySize::BySize(const TileProgram& kernel, std::function<double(const TileProgram&, const Bindings&)> of)
    : kernel_(kernel), of_(std::move(of)), expressions_(size_expressions(kernel.stages)) {}

double BySize::operator()(const Bindings& sizes) {
    std::vector<int64_t> key;
    key.reserve(expressions_.size());
    for (const Expr e : expressions_) key.push_back(evaluate(e, sizes));
    {
        const std::lock_guard lock(mutex_);
        if (const auto it = known_.find(key); it != known_.end()) return it->second;
    }
    const double value = of_(kernel_, sizes);
    const std::lock_guard lock(mutex_);
    known_.emplace(std::move(key), value);
    return value;
}

}  // namespace tilewright::dynamic
