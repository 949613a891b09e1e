// Moves products across linear maps: channels are mixed before upsampling.

#include <algorithm>

#include "program/rewrite/algebra.h"
#include "program/rewrite/rules.h"

namespace tilewright {

namespace {

/// A node as a function of the elements of one value.
enum class Form : uint8_t { Without, Linear, Other };

/// For the body's root. Each node is visited once, because bodies are DAGs.
Form form_of(const TensorExpr& e, ValueId x) {
    std::vector<Form> forms;
    forms.reserve(e.body.nodes().size());
    const auto of = [&](ScalarId operand) { return forms[operand.index()]; };
    const auto zero = [&](ScalarId operand) {
        return e.body[operand].op == ScalarOp::Const && e.body[operand].value == 0;
    };
    const auto form = [&](const ScalarNode& n) {
        switch (n.op) {
            case ScalarOp::Access:
                return e.accesses[n.slot].value == x ? Form::Linear : Form::Without;
            case ScalarOp::Neg:
                return of(n.a);
            case ScalarOp::Add:
            case ScalarOp::Sub:
                return of(n.a) == of(n.b) ? of(n.a) : Form::Other;
            case ScalarOp::Mul:
                if (of(n.a) == Form::Without) return of(n.b);
                return of(n.b) == Form::Without ? of(n.a) : Form::Other;
            case ScalarOp::Div:
                return of(n.b) == Form::Without ? of(n.a) : Form::Other;
            case ScalarOp::Select:
                if (of(n.a) != Form::Without) return Form::Other;
                if (of(n.b) == of(n.c)) return of(n.b);
                if (of(n.b) == Form::Linear && zero(n.c)) return Form::Linear;
                return of(n.c) == Form::Linear && zero(n.b) ? Form::Linear : Form::Other;
            default:
                for (const ScalarId operand : {n.a, n.b, n.c})
                    if (operand && of(operand) != Form::Without) return Form::Other;
                return Form::Without;
        }
    };
    for (const ScalarNode& n : e.body.nodes()) forms.push_back(form(n));
    return of(e.body.root());
}

/// The value of which `map` is a linear combination, the same for every point of dimension `along`, which is also
/// dimension `along` of the value:   map(x)_p,k = sum_q c_pq x_q,k
std::optional<ValueId> linear_along_others(const RewriteContext& context, const TensorExpr& map, DType made,
                                           size_t along) {
    if (!is_map(map, made)) return std::nullopt;
    for (const Access& candidate : map.accesses) {
        const ValueId x = candidate.value;
        if (context.value(x).dtype != made || context.value(x).shape.size() != map.spatial) continue;
        if (!(context.value(x).shape[along] == map.extents[along])) continue;
        TensorExpr elsewhere = map;
        bool plain = true;
        for (Access& a : elsewhere.accesses) {
            if (a.value != x) continue;
            plain = plain && a.index[along] == axis(along) && a.fill == 0;
            a.index[along] = 0;
        }
        if (!plain || form_of(map, x) != Form::Linear) continue;
        if (axes_below(elsewhere, elsewhere.body.root()).count(static_cast<uint32_t>(along)) == 0) return x;
    }
    return std::nullopt;
}

// sum_k f(x)_pk w_kj  =  f(sum_k x_pk w_kj), where f increases the number of points
void product_of_linear_map(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    const TensorExpr& e = *p.expr();
    const DType t = context.value(p.outputs[0]).dtype;
    if (!is_sum(e, t) || e.extents.size() != e.spatial + 1) return;
    const std::vector<Factor> both = factors(e.body, e.body.root());
    if (both.size() != 2 || both[0].under || both[1].under) return;
    for (const size_t k : {0, 1}) {
        const auto left = bare_slot(e.body, both[k].node), right = bare_slot(e.body, both[1 - k].node);
        if (!left || !right || *left == *right) return;
        const Access &read = e.accesses[*left], &weights = e.accesses[*right];
        const TensorExpr* map = context.producer(read.value);
        if (map == nullptr || !read.valid.empty() || !weights.valid.empty() || uses_load(weights.index)) continue;
        const auto summed = static_cast<uint32_t>(e.spatial);
        const auto dim = bare_dim(context, e, read, summed);
        if (!dim || map->spatial != e.spatial || !context.read_once(read.value)) continue;
        const size_t along = *dim;
        std::vector<Expr> points = plain_axes(e.spatial);
        points[along] = axis(summed);
        if (!same_index(e.extents, read.index, points)) continue;
        const std::set<uint32_t> moves = axes_of(weights.index);
        if (std::any_of(moves.begin(), moves.end(), [&](uint32_t a) { return a != along && a != summed; })) continue;
        const auto x = linear_along_others(context, *map, t, along);
        if (!x) continue;
        const Expr before = product(context.value(*x).shape), after = product(map->extents);
        if (!before.is_constant() || !after.is_constant() || before.constant() >= after.constant()) continue;

        PatchWriter patch(context, at);
        std::vector<Expr> extents = context.value(*x).shape;
        extents[along] = e.extents[along];
        extents.push_back(e.extents[summed]);
        ExprWriter w(extents, e.spatial, Reducer::Sum);
        const ScalarId element = w.read(*x, t, points);
        const ScalarId by = w.read(weights.value, context.value(weights.value).dtype, weights.index);
        const ValueId mixed = patch.make(w.finish(w.body().binary(ScalarOp::Mul, element, by)), t, "mixed");
        TensorExpr out = *map;
        out.extents[along] = e.extents[along];
        for (Access& a : out.accesses)
            if (a.value == *x) a.value = mixed;
        patch.define(p.outputs[0], std::move(out));
        found.push_back(patch.take());
    }
}

}  // namespace

std::span<const RewriteRule> linear_map_rewrites() {
    static const RewriteRule rules[] = {
        {"product_of_linear_map", "sum_k f(x)_pk w_kj = f(sum_k x_pk w_kj), f linear and the same for every k",
         product_of_linear_map},
    };
    return rules;
}

}  // namespace tilewright
