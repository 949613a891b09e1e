#include "program/transform/tidy.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "index/facts.h"
#include "program/scalar_eval.h"

namespace tilewright {

namespace {

ScalarBody map_index_nodes(const ScalarBody& body, const std::function<Expr(Expr)>& f) {
    if (body.empty()) return body;
    ScalarBody out;
    out.set_root(out.inline_body(body, [&](ScalarBody& b, const ScalarNode& n) {
        return n.op == ScalarOp::Index ? b.index(f(n.index)) : ScalarId();
    }));
    return out;
}

/// The integer expression that a node represents, for Index and constants.
std::optional<Expr> as_index(const ScalarNode& n) {
    if (n.op == ScalarOp::Index) return n.index;
    if (n.op == ScalarOp::Const && n.dtype == DType::I64) return Expr(n.int_value);
    return std::nullopt;
}

/// The result of a comparison between index expressions, if the ranges decide it.
std::optional<bool> decide(ScalarOp op, Expr a, Expr b, const Ranges& ranges) {
    const auto at_least = [&](Expr x, Expr y) { return prove_nonnegative(x - y, ranges); };
    switch (op) {
        case ScalarOp::Ge:
            if (at_least(a, b)) return true;
            if (at_least(b, a + 1)) return false;
            return std::nullopt;
        case ScalarOp::Gt:
            if (at_least(a, b + 1)) return true;
            if (at_least(b, a)) return false;
            return std::nullopt;
        case ScalarOp::Le:
            return decide(ScalarOp::Ge, b, a, ranges);
        case ScalarOp::Lt:
            return decide(ScalarOp::Gt, b, a, ranges);
        case ScalarOp::Eq:
        case ScalarOp::Ne:
            if (a == b) return op == ScalarOp::Eq;
            if (at_least(a, b + 1) || at_least(b, a + 1)) return op == ScalarOp::Ne;
            return std::nullopt;
        default:
            return std::nullopt;
    }
}

/// Rebuilds a body bottom-up: leaves through `leaf` (none: copied), with comparisons of indices decided.
ScalarBody rebuild(const ScalarBody& body, const Ranges& ranges,
                   const std::function<ScalarId(ScalarBody&, const ScalarNode&)>& leaf) {
    if (body.empty()) return body;
    const ScalarBody needed = body.pruned();
    ScalarBody out;
    std::vector<ScalarId> moved;
    for (ScalarNode n : needed.nodes()) {
        ScalarId to;
        if (arity(n.op) == 0) {
            to = leaf(out, n);
        } else {
            for (ScalarId* operand : {&n.a, &n.b, &n.c})
                if (*operand) *operand = moved[operand->index()];
            if (arity(n.op) == 2 && n.dtype == DType::Bool) {
                const auto a = as_index(out[n.a]), b = as_index(out[n.b]);
                if (a && b)
                    if (const auto truth = decide(n.op, *a, *b, ranges))
                        to = out.int_constant(DType::Bool, *truth ? 1 : 0);
            }
        }
        moved.push_back(to ? to : out.add(std::move(n)));
    }
    out.set_root(moved[needed.root().index()]);
    return out.pruned();
}

/// Simplifies conditions and drops those that always hold or follow from others. Sets `never` if one cannot hold.
std::vector<Expr> tidy_conditions(const std::vector<Expr>& conditions, const Ranges& ranges, bool& never) {
    std::vector<Expr> kept;
    for (const Expr c : conditions) {
        const Expr e = simplify(c, ranges);
        if (prove_nonnegative(e, ranges) || std::find(kept.begin(), kept.end(), e) != kept.end()) continue;
        never = never || prove_nonnegative(-e - 1, ranges);
        kept.push_back(e);
    }
    for (size_t k = kept.size(); k-- > 0 && kept.size() > 1;) {
        std::vector<Expr> others = kept;
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(k));
        if (prove_nonnegative(kept[k], ranges, others)) kept = std::move(others);
    }
    return kept;
}

bool equal(const Access& a, const Access& b) {
    return a.value == b.value && a.index == b.index && a.valid == b.valid &&
           (a.valid.empty() || std::bit_cast<uint64_t>(a.fill) == std::bit_cast<uint64_t>(b.fill));
}

/// Renumbering of accesses: the new slot of each, none if dropped.
class Accesses {
  public:
    explicit Accesses(const TensorExpr& expr) : expr_(expr), needed_(expr.accesses.size(), false) {
        for (const ScalarBody* body : {&expr.body, &expr.epilogue}) {
            if (body->empty()) continue;
            for (const uint32_t slot : body->slots()) need(slot);
            const ScalarBody rooted = body->pruned();
            for (const ScalarNode& n : rooted.nodes())
                if (n.op == ScalarOp::Index) need_loads(n.index);
        }
    }

    bool needed(size_t k) const { return needed_[k]; }
    std::vector<uint32_t> moved;  ///< filled by the caller in ascending order

    Expr renumbered(Expr e) const {
        return substitute(e, [&](Var v) -> std::optional<Expr> {
            if (v.kind != VarKind::Load) return std::nullopt;
            return load(moved.at(v.id));
        });
    }

  private:
    void need(uint32_t slot) {
        TW_CHECK(slot < needed_.size(), "access {} of {}", slot, needed_.size());
        if (needed_[slot]) return;
        needed_[slot] = true;
        for (const Expr e : expr_.accesses[slot].index) need_loads(e);
        for (const Expr e : expr_.accesses[slot].valid) need_loads(e);
    }
    void need_loads(Expr e) {
        for (const Var v : variables(e))
            if (v.kind == VarKind::Load) need(v.id);
    }

    const TensorExpr& expr_;
    std::vector<bool> needed_;
};

/// One round; folding a select may leave accesses unused, so the caller repeats it.
TensorExpr tidy_once(const TensorExpr& expr) {
    const Ranges ranges = expr.ranges();
    TensorExpr out;
    out.extents = expr.extents;
    out.spatial = expr.spatial;
    out.reducer = expr.reducer;
    for (const Expr e : expr.output_index) out.output_index.push_back(simplify(e, ranges));

    Accesses accesses(expr);
    std::vector<bool> constant(expr.accesses.size(), false);
    for (size_t k = 0; k < expr.accesses.size(); ++k) {
        accesses.moved.push_back(0);
        if (!accesses.needed(k)) continue;
        Access a = expr.accesses[k];
        bool never = false;
        a.valid = tidy_conditions(a.valid, ranges, never);
        constant[k] = never;
        for (Expr& e : a.index) e = accesses.renumbered(simplify(e, ranges));
        for (Expr& e : a.valid) e = accesses.renumbered(e);
        const auto same = std::find_if(out.accesses.begin(), out.accesses.end(),
                                       [&](const Access& other) { return equal(a, other); });
        accesses.moved[k] = static_cast<uint32_t>(same - out.accesses.begin());
        if (same == out.accesses.end()) out.accesses.push_back(std::move(a));
    }
    const auto leaf = [&](ScalarBody& b, const ScalarNode& n) -> ScalarId {
        if (n.op == ScalarOp::Index) {
            const Expr e = accesses.renumbered(simplify(n.index, ranges));
            return e.is_constant() ? b.int_constant(DType::I64, e.constant()) : b.index(e);
        }
        if (n.op != ScalarOp::Access) return ScalarId();
        if (!constant[n.slot]) return b.access(accesses.moved[n.slot], n.dtype);
        const ScalarValue fill = scalar_from_double(n.dtype, expr.accesses[n.slot].fill);
        return is_float(n.dtype) ? b.constant(n.dtype, fill.f) : b.int_constant(n.dtype, fill.i);
    };
    out.body = rebuild(expr.body, ranges, leaf);
    out.epilogue = rebuild(expr.epilogue, ranges, leaf);
    if (!out.epilogue.empty() && out.epilogue[out.epilogue.root()].op == ScalarOp::Acc) out.epilogue = {};
    return out;
}

}  // namespace

TensorExpr map_indices(const TensorExpr& expr, const std::function<Expr(Expr)>& f) {
    TensorExpr out = expr;
    for (Access& a : out.accesses) {
        for (Expr& e : a.index) e = f(e);
        for (Expr& e : a.valid) e = f(e);
    }
    for (Expr& e : out.output_index) e = f(e);
    out.body = map_index_nodes(expr.body, f);
    out.epilogue = map_index_nodes(expr.epilogue, f);
    return out;
}

TensorExpr tidy(const TensorExpr& expr) {
    TensorExpr out = tidy_once(expr);
    while (true) {
        const size_t before = out.accesses.size();
        const Accesses accesses(out);
        bool all_needed = true;
        for (size_t k = 0; k < before; ++k) all_needed = all_needed && accesses.needed(k);
        if (all_needed) return out;
        out = tidy_once(out);
    }
}

}  // namespace tilewright
