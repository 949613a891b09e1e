// Rewrites sums as products with ones and back, and factors out common operands of two terms.

#include <algorithm>

#include "program/rewrite/algebra.h"
#include "program/rewrite/rules.h"

namespace tilewright {

namespace {

// sum_k a_ik  =  sum_k a_ik 1_k
void sum_as_product(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    const TensorExpr& e = *p.expr();
    const DType t = context.value(p.outputs[0]).dtype;
    if (!is_sum(e, t) || !bare_slot(e.body, e.body.root())) return;
    PatchWriter patch(context, at);
    const size_t summed = e.extents.size() - e.spatial;
    ExprWriter ones({e.extents.begin() + static_cast<std::ptrdiff_t>(e.spatial), e.extents.end()}, summed);
    const ValueId one = patch.make(ones.finish(ones.body().constant(t, 1)), t, "ones");
    ExprWriter w(e.extents, e.spatial, Reducer::Sum);
    const ScalarId element = w.copy(e, e.body.root(), plain_axes(e.extents.size()));
    const ScalarId by = w.read(one, t, plain_axes(summed, e.spatial));
    patch.define(p.outputs[0], w.finish(w.body().binary(ScalarOp::Mul, element, by)));
    found.push_back(patch.take());
}

// sum_k a_ik 1_k  =  sum_k a_ik; other uniform constants likewise
void product_as_sum(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    const TensorExpr& e = *p.expr();
    if (!is_sum(e, context.value(p.outputs[0]).dtype)) return;
    for (uint32_t slot = 0; slot < e.accesses.size(); ++slot) {
        if (!e.accesses[slot].valid.empty()) continue;
        const auto number = context.fill(e.accesses[slot].value);
        if (!number) continue;
        TensorExpr sum = with_number(e, slot, *number);
        if (sum.accesses.empty()) continue;
        PatchWriter patch(context, at);
        patch.define(p.outputs[0], std::move(sum));
        found.push_back(patch.take());
    }
}

/// a + b or a - b.
struct Terms {
    ScalarOp op;
    ScalarId a, b;
};
std::optional<Terms> two_terms(const ScalarBody& body) {
    const ScalarNode& n = body[body.root()];
    if (n.op != ScalarOp::Add && n.op != ScalarOp::Sub) return std::nullopt;
    return Terms{n.op, n.a, n.b};
}

/// The expression that computes the node's operand at the same point of the map; null for other nodes.
const TensorExpr* term(const RewriteContext& context, const TensorExpr& e, ScalarId node) {
    const auto slot = bare_slot(e.body, node);
    if (!slot) return nullptr;
    const Access& a = e.accesses[*slot];
    if (!at_own_point(e, a)) return nullptr;
    return context.producer(a.value);
}

bool same_place(const Access& a, const Access& b) {
    return a.index == b.index && a.valid == b.valid && a.fill == b.fill;
}

// sum_k a_ik b_kj + sum_k a_ik c_kj  =  sum_k a_ik (b_kj + c_kj)
void common_operand(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    const TensorExpr& e = *p.expr();
    const DType t = context.value(p.outputs[0]).dtype;
    const auto terms = is_map(e, t) ? two_terms(e.body) : std::nullopt;
    if (!terms) return;
    const TensorExpr *l = term(context, e, terms->a), *r = term(context, e, terms->b);
    if (l == nullptr || r == nullptr || !is_sum(*l, t) || !is_sum(*r, t) || l->extents != r->extents) return;
    const std::vector<Factor> lf = factors(l->body, l->body.root()), rf = factors(r->body, r->body.root());
    if (lf.size() != 2 || rf.size() != 2) return;
    const auto slot = [](const TensorExpr& x, const Factor& f) {
        return f.under ? std::nullopt : bare_slot(x.body, f.node);
    };
    for (const size_t i : {0, 1})
        for (const size_t j : {0, 1}) {
            const auto shared = slot(*l, lf[i]), shared_too = slot(*r, rf[j]);
            const auto own = slot(*l, lf[1 - i]), other = slot(*r, rf[1 - j]);
            if (!shared || !shared_too || !own || !other) continue;
            if (!(l->accesses[*shared] == r->accesses[*shared_too])) continue;
            const Access &b = l->accesses[*own], &c = r->accesses[*other];
            if (!same_place(b, c) || b.value == c.value || (!b.valid.empty() && b.fill != 0)) continue;
            const std::vector<Expr>& shape = context.value(b.value).shape;
            if (shape != context.value(c.value).shape || context.value(b.value).dtype != t) continue;
            PatchWriter patch(context, at);
            ExprWriter w(shape, shape.size());
            const ScalarId x = w.read(context, b.value, plain_axes(shape.size()));
            const ScalarId y = w.read(context, c.value, plain_axes(shape.size()));
            const ValueId both = patch.make(w.finish(w.body().binary(terms->op, x, y)), t, "operands");
            patch.define(p.outputs[0], with_operand(patch, *l, *own, both));
            found.push_back(patch.take());
            return;
        }
}

// f_i a_i + f_i b_i  =  f_i (a_i + b_i)
void common_factor(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    const TensorExpr& e = *p.expr();
    const DType t = context.value(p.outputs[0]).dtype;
    const auto terms = is_map(e, t) ? two_terms(e.body) : std::nullopt;
    if (!terms) return;
    ExprWriter w(e.extents, e.spatial);
    const std::vector<Expr> axes = plain_axes(e.spatial);
    // Both terms in one body, in which equal factors are one node.
    const auto factors_of = [&](ScalarId node) {
        std::vector<std::pair<ScalarId, bool>> out;
        const TensorExpr* map = term(context, e, node);
        if (map != nullptr && is_map(*map, t) && !is_view(*map)) {
            for (const Factor& f : factors(map->body, map->body.root()))
                out.emplace_back(w.copy(*map, f.node, axes), f.under);
        } else {
            for (const Factor& f : factors(e.body, node)) out.emplace_back(w.copy(e, f.node, axes), f.under);
        }
        return out;
    };
    std::vector<std::pair<ScalarId, bool>> left = factors_of(terms->a), right = factors_of(terms->b), shared;
    for (size_t k = 0; k < left.size();) {
        const auto same = std::find(right.begin(), right.end(), left[k]);
        if (same == right.end()) {
            ++k;
            continue;
        }
        shared.push_back(left[k]);
        right.erase(same);
        left.erase(left.begin() + static_cast<std::ptrdiff_t>(k));
    }
    if (shared.empty()) return;
    const ScalarId rest = w.body().binary(terms->op, w.multiply(t, left), w.multiply(t, right));
    shared.insert(shared.begin(), {rest, false});
    PatchWriter patch(context, at);
    patch.define(p.outputs[0], w.finish(w.multiply(t, shared)));
    found.push_back(patch.take());
}

}  // namespace

std::span<const RewriteRule> sum_rewrites() {
    static const std::vector<RewriteRule> rules = {
        {"sum_as_product", "sum_k a_ik = sum_k a_ik 1_k", sum_as_product},
        {"product_as_sum", "sum_k a_ik 1_k = sum_k a_ik", product_as_sum},
        {"common_operand", "sum_k a_ik b_kj + sum_k a_ik c_kj = sum_k a_ik (b_kj + c_kj)", common_operand},
        {"common_factor", "f_i a_i + f_i b_i = f_i (a_i + b_i)", common_factor},
    };
    return rules;
}

}  // namespace tilewright
