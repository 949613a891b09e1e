// Moves factors and summands across sums of products: out of them, into them, from one operand to the other.
//
// Before a product with constant weights these fold: the scale of a normalisation becomes part of the weights, its
// shift a bias. After the products of softmax they save divisions: one per element of the result instead of one per
// score.

#include <algorithm>

#include "program/rewrite/algebra.h"
#include "program/rewrite/rules.h"
#include "program/transform/inline.h"

namespace tilewright {

namespace {

bool moves_along_sum(const TensorExpr& sum, const std::set<uint32_t>& axes) {
    return std::any_of(axes.begin(), axes.end(), [&](uint32_t a) { return a >= sum.spatial; });
}

/// The reduction axes that a node of an operand's producer varies along, the operand being read at `index`.
std::set<uint32_t> axes_through(const TensorExpr& producer, ScalarId node, const std::vector<Expr>& index) {
    std::vector<Expr> moved;
    for (const uint32_t a : axes_below(producer, node)) moved.push_back(index[a]);
    return axes_of(moved);
}

/// out[i] = result[i] * moved factors, as the definition of `out`.
///     `from`: the expression that contains the factors, whose axis k is axes[k] of the result
void scale_result(PatchWriter& patch, const RewriteContext& context, ValueId out, const TensorExpr& sum, ValueId result,
                  const TensorExpr& from, const std::vector<Factor>& moved, std::span<const Expr> axes) {
    const std::vector<Expr> extents(sum.extents.begin(),
                                    sum.extents.begin() + static_cast<std::ptrdiff_t>(sum.spatial));
    ExprWriter w(extents, sum.spatial);
    const DType t = context.value(out).dtype;
    std::vector<std::pair<ScalarId, bool>> all = {{w.read(result, t, plain_axes(sum.spatial)), false}};
    for (const Factor& f : moved) all.emplace_back(w.copy(from, f.node, axes), f.under);
    patch.define(out, w.finish(w.multiply(t, all)));
}

// sum_k f_i g_k  =  f_i sum_k g_k
void factor_out_of_sum(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    const TensorExpr& e = *p.expr();
    const DType t = context.value(p.outputs[0]).dtype;
    if (!is_sum(e, t)) return;
    std::vector<Factor> moved, kept;
    for (const Factor& f : factors(e.body, e.body.root()))
        (moves_along_sum(e, axes_below(e, f.node)) ? kept : moved).push_back(f);
    if (moved.empty() || kept.empty()) return;

    PatchWriter patch(context, at);
    ExprWriter inner(e.extents, e.spatial, Reducer::Sum);
    const std::vector<Expr> axes = plain_axes(e.extents.size());
    std::vector<std::pair<ScalarId, bool>> rest;
    for (const Factor& f : kept) rest.emplace_back(inner.copy(e, f.node, axes), f.under);
    const ValueId result = patch.make(inner.finish(inner.multiply(t, rest)), t, "unscaled");
    scale_result(patch, context, p.outputs[0], e, result, e, moved, axes);
    found.push_back(patch.take());
}

/// A factor of a sum that is an operand computed by a map, read without loads.
struct MapOperand {
    uint32_t slot;
    const TensorExpr* map;
};
std::vector<MapOperand> map_operands(const RewriteContext& context, const TensorExpr& sum) {
    std::vector<MapOperand> out;
    for (const Factor& f : factors(sum.body, sum.body.root())) {
        const auto slot = bare_slot(sum.body, f.node);
        if (!slot || f.under) continue;
        const Access& a = sum.accesses[*slot];
        const TensorExpr* map = context.producer(a.value);
        if (map == nullptr || !is_map(*map, context.value(a.value).dtype) || uses_load(a.index)) continue;
        if (a.valid.empty() || a.fill == 0) out.push_back({*slot, map});
    }
    return out;
}

/// Whether the reads of the node are in bounds even where the access to its producer is not valid.
bool always_inside(const TensorExpr& sum, const TensorExpr& map, ScalarId node, const Access& read) {
    if (read.valid.empty()) return true;
    const Ranges ranges = sum.ranges();
    const std::set<uint32_t> axes = axes_below(map, node);
    return std::all_of(axes.begin(), axes.end(), [&](uint32_t a) {
        return prove_nonnegative(read.index[a], ranges) && prove_less(read.index[a], map.extents[a], ranges);
    });
}

/// The map reduced to these of its factors.
ValueId make_product(PatchWriter& patch, const TensorExpr& map, DType t, const std::vector<Factor>& kept,
                     std::string_view role) {
    ExprWriter w(map.extents, map.spatial);
    const std::vector<Expr> axes = plain_axes(map.spatial);
    std::vector<std::pair<ScalarId, bool>> rest;
    for (const Factor& f : kept) rest.emplace_back(w.copy(map, f.node, axes), f.under);
    return patch.make(w.finish(w.multiply(t, rest)), t, role);
}

// sum_k (a_ik / s_i) b_kj  =  (sum_k a_ik b_kj) / s_i
void factor_across_sum(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    const TensorExpr& e = *p.expr();
    const DType t = context.value(p.outputs[0]).dtype;
    if (!is_sum(e, t)) return;
    for (const auto& [slot, map] : map_operands(context, e)) {
        const Access& read = e.accesses[slot];
        if (!read.valid.empty()) continue;  // the factor would be read where the operand itself is not
        std::vector<Factor> moved, kept;
        for (const Factor& f : factors(map->body, map->body.root()))
            (moves_along_sum(e, axes_through(*map, f.node, read.index)) ? kept : moved).push_back(f);
        if (moved.empty() || kept.empty()) continue;
        PatchWriter patch(context, at);
        const ValueId operand = make_product(patch, *map, t, kept, "unscaled_operand");
        const ValueId result = patch.make(with_operand(patch, e, slot, operand), t, "unscaled");
        scale_result(patch, context, p.outputs[0], e, result, *map, moved, read.index);
        found.push_back(patch.take());
    }
}

/// Maps the axes of a sum to the dimensions of an operand; a value of the operand's shape may vary along those only.
///     b[k, j] read at [i2, i1]:  {2: 0, 1: 1}
std::optional<std::vector<Expr>> axes_in_operand(const RewriteContext& context, const TensorExpr& sum,
                                                 const Access& operand, const std::set<uint32_t>& needed) {
    std::vector<Expr> axes(sum.extents.size(), Expr(0));
    for (const uint32_t a : needed) {
        const auto d = bare_dim(context, sum, operand, a);
        if (!d) return std::nullopt;
        axes[a] = axis(*d);
    }
    return axes;
}

/// The element of `value` at the same point, for a map of its shape.
ExprWriter map_over(const RewriteContext& context, ValueId value, ScalarId& element) {
    const std::vector<Expr>& shape = context.value(value).shape;
    ExprWriter w(shape, shape.size());
    element = w.read(context, value, plain_axes(shape.size()));
    return w;
}

// s_j (sum_k a_ik b_kj) + t_j  =  (sum_k a_ik (s_j b_kj)) + t_j
void scale_into_sum(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    const TensorExpr& e = *p.expr();
    const ValueId out = p.outputs[0];
    const DType t = context.value(out).dtype;
    if (!is_map(e, t)) return;
    for (const uint32_t slot : e.body.slots()) {
        const Access& read = e.accesses[slot];
        const TensorExpr* sum = context.producer(read.value);
        if (sum == nullptr || !is_sum(*sum, t) || !context.read_once(read.value) || !at_own_point(e, read)) continue;
        const auto affine = affine_in(e, slot);
        if (!affine || !affine->scales) continue;
        TensorExpr scale_only = e;
        scale_only.body = affine->scale;
        const std::set<uint32_t> needed = axes_below(scale_only, scale_only.body.root());
        const std::vector<Factor> operands = factors(sum->body, sum->body.root());
        const auto constant = [&](const Factor& f) {
            const auto k = bare_slot(sum->body, f.node);
            return k && context.foldable(sum->accesses[*k].value);
        };
        const bool any_constant = std::any_of(operands.begin(), operands.end(), constant);
        for (const Factor& f : operands) {
            const auto k = bare_slot(sum->body, f.node);
            if (!k || f.under || (any_constant && !constant(f))) continue;
            const Access& operand = sum->accesses[*k];
            if ((!operand.valid.empty() && operand.fill != 0) || uses_load(operand.index)) continue;
            const auto axes = axes_in_operand(context, *sum, operand, needed);
            if (!axes) continue;
            PatchWriter patch(context, at);
            ScalarId element;
            ExprWriter w = map_over(context, operand.value, element);
            const ScalarId scale = w.copy(e, affine->scale, *axes);
            const ValueId scaled = patch.make(w.finish(w.body().binary(ScalarOp::Mul, element, scale)), t, "scaled");
            const TensorExpr product = with_operand(patch, *sum, *k, scaled);
            if (affine->shift.empty()) {
                patch.define(out, product);
            } else {
                const ValueId result = patch.make(product, t, "products");
                ExprWriter shifted(e.extents, e.spatial);
                const ScalarId x = shifted.read(result, t, read.index);
                const ScalarId shift = shifted.copy(e, affine->shift, plain_axes(e.spatial));
                patch.define(out, shifted.finish(shifted.body().binary(ScalarOp::Add, x, shift)));
            }
            found.push_back(patch.take());
        }
    }
}

/// Whether all operands of a node are foldable.
bool reads_constants(const RewriteContext& context, const TensorExpr& e, const ScalarBody& body) {
    const std::vector<uint32_t> slots = body.slots();
    return std::all_of(slots.begin(), slots.end(), [&](uint32_t s) {
        return context.foldable(e.accesses[s].value) && !uses_load(e.accesses[s].index);
    });
}

/// The other operand of a sum of two bare factors, if it is foldable.
std::optional<uint32_t> constant_partner(const RewriteContext& context, const TensorExpr& sum, uint32_t slot) {
    std::optional<uint32_t> found;
    for (const Factor& f : factors(sum.body, sum.body.root())) {
        const auto k = bare_slot(sum.body, f.node);
        if (k == slot) continue;
        if (!k || f.under || found || !context.foldable(sum.accesses[*k].value) || uses_load(sum.accesses[*k].index))
            return std::nullopt;
        found = k;
    }
    return found;
}

// sum_k (a_ik s_k) b_kj  =  sum_k a_ik (s_k b_kj), for constant s and b
void factor_to_weights(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    const TensorExpr& e = *p.expr();
    const DType t = context.value(p.outputs[0]).dtype;
    if (!is_sum(e, t)) return;
    for (const auto& [slot, map] : map_operands(context, e)) {
        const Access& read = e.accesses[slot];
        const auto partner = constant_partner(context, e, slot);
        if (!partner || context.foldable(read.value)) continue;
        const Access& weights = e.accesses[*partner];
        std::vector<Factor> moved, kept;
        std::set<uint32_t> needed;
        for (const Factor& f : factors(map->body, map->body.root())) {
            ScalarBody part = map->body;
            part.set_root(f.node);
            const std::set<uint32_t> axes = axes_through(*map, f.node, read.index);
            const bool movable = reads_constants(context, *map, part) && axes_in_operand(context, e, weights, axes) &&
                                 always_inside(e, *map, f.node, read);
            (movable ? moved : kept).push_back(f);
            if (movable) needed.insert(axes.begin(), axes.end());
        }
        if (moved.empty() || kept.empty()) continue;
        const auto at_weights = axes_in_operand(context, e, weights, needed);
        std::vector<Expr> axes;  // of the map, over the weights' dimensions
        for (const Expr i : read.index) axes.push_back(substitute_axes(i, *at_weights));
        PatchWriter patch(context, at);
        ScalarId element;
        ExprWriter w = map_over(context, weights.value, element);
        std::vector<std::pair<ScalarId, bool>> all = {{element, false}};
        for (const Factor& f : moved) all.emplace_back(w.copy(*map, f.node, axes), f.under);
        const ValueId scaled = patch.make(w.finish(w.multiply(t, all)), t, "scaled_weights");
        const ValueId operand = make_product(patch, *map, t, kept, "unscaled_operand");
        TensorExpr product = e;
        product.accesses[*partner].value = scaled;
        patch.define(p.outputs[0], with_operand(patch, product, slot, operand));
        found.push_back(patch.take());
    }
}

// sum_k (a_ik + c_k) b_kj  =  sum_k a_ik b_kj + sum_k c_k b_kj, for constant c and b
void shift_to_bias(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    const TensorExpr& e = *p.expr();
    const DType t = context.value(p.outputs[0]).dtype;
    if (!is_sum(e, t)) return;
    for (const auto& [slot, map] : map_operands(context, e)) {
        if (!constant_partner(context, e, slot) || context.foldable(e.accesses[slot].value)) continue;
        for (const uint32_t inner : map->body.slots()) {
            const auto affine = affine_in(*map, inner);
            if (!affine || affine->shift.empty() || !reads_constants(context, *map, affine->shift)) continue;
            PatchWriter patch(context, at);
            ExprWriter w(map->extents, map->spatial);
            const std::vector<Expr> axes = plain_axes(map->spatial);
            const Access& x = map->accesses[inner];
            const ScalarId element = w.read(x.value, context.value(x.value).dtype, x.index, x.valid, x.fill);
            const ScalarId scale = w.copy(*map, affine->scale, axes);
            const ValueId rest =
                patch.make(w.finish(w.body().binary(ScalarOp::Mul, element, scale)), t, "unshifted_operand");
            const ValueId result = patch.make(with_operand(patch, e, slot, rest), t, "products");

            // The shift over the axes that it varies along, and its product over the remaining ones.
            TensorExpr shift = *map;
            shift.body = affine->shift;
            const std::set<uint32_t> along = axes_below(shift, shift.body.root());
            std::vector<Expr> extents, at_axis(map->spatial, Expr(0));
            TensorExpr bias = e;
            bias.accesses[slot].index.clear();
            for (const uint32_t a : along) {
                at_axis[a] = axis(extents.size());
                extents.push_back(map->extents[a]);
                bias.accesses[slot].index.push_back(e.accesses[slot].index[a]);
            }
            ExprWriter c(extents, extents.size());
            const ScalarId shift_root = c.copy(*map, affine->shift, at_axis);
            const ValueId shift_value = patch.make(c.finish(shift_root), t, "shift");
            bias.accesses[slot].value = shift_value;
            std::set<uint32_t> used = axes_below(bias, bias.body.root());
            std::vector<Expr> bias_axes(e.extents.size(), Expr(0)), bias_extents, bias_at;
            size_t spatial = 0;
            for (uint32_t a = 0; a < e.extents.size(); ++a) {
                if (a < e.spatial && used.count(a) == 0)
                    continue;  // every reduction axis stays, because it multiplies the sum
                bias_axes[a] = axis(bias_extents.size());
                bias_extents.push_back(e.extents[a]);
                if (a < e.spatial) {
                    bias_at.push_back(axis(a));
                    ++spatial;
                }
            }
            ExprWriter b(bias_extents, spatial, Reducer::Sum);
            const ScalarId bias_root = b.copy(bias, bias.body.root(), bias_axes);
            const ValueId bias_value = patch.make(b.finish(bias_root), t, "bias");

            std::vector<Expr> out_extents(e.extents.begin(),
                                          e.extents.begin() + static_cast<std::ptrdiff_t>(e.spatial));
            ExprWriter sum(out_extents, e.spatial);
            const ScalarId left = sum.read(result, t, plain_axes(e.spatial));
            const ScalarId right = sum.read(bias_value, t, bias_at);
            patch.define(p.outputs[0], sum.finish(sum.body().binary(ScalarOp::Add, left, right)));
            found.push_back(patch.take());
        }
    }
}

size_t operations(const ScalarBody& body) {
    const ScalarBody pruned = body.pruned();
    return static_cast<size_t>(std::count_if(pruned.nodes().begin(), pruned.nodes().end(),
                                             [](const ScalarNode& n) { return arity(n.op) > 0; }));
}

/// The node as a separate constant over the axes that it varies along; read back at its place.
ScalarId as_constant(PatchWriter& patch, ExprWriter& into, const TensorExpr& e, const ScalarBody& part, DType t,
                     std::string_view role) {
    if (operations(part) == 0) return into.copy(e, part, plain_axes(e.spatial));
    TensorExpr whole = e;
    whole.body = part;
    std::vector<Expr> extents, axes(e.spatial, Expr(0)), index;
    for (const uint32_t a : axes_below(whole, part.root())) {
        axes[a] = axis(extents.size());
        extents.push_back(e.extents[a]);
        index.push_back(axis(a));
    }
    const size_t rank = extents.size();
    ExprWriter w(std::move(extents), rank);
    const ScalarId root = w.copy(e, part, axes);
    return into.read(patch.make(w.finish(root), t, role), t, std::move(index));
}

// ((x + a - m) / s) g + b  =  x (g / s) + ((a - m) (g / s) + b), for constants a, m, s, g, b
void fold_affine_chain(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    const DType t = context.value(p.outputs[0]).dtype;
    if (!is_map(*p.expr(), t)) return;
    // The whole chain of producer maps as one expression.
    TensorExpr e = *p.expr();
    for (bool more = true; more;) {
        more = false;
        for (uint32_t slot = 0; slot < e.accesses.size() && !more; ++slot) {
            const Access& a = e.accesses[slot];
            const TensorExpr* map = context.producer(a.value);
            if (context.foldable(a.value) || map == nullptr || !is_map(*map, t) || !context.read_once(a.value) ||
                is_view(*map) || !at_own_point(e, a))
                continue;
            const auto fused = inline_producer(e, slot, *map, context.value(a.value));
            if (!fused) continue;
            e = *fused;
            more = true;
        }
        if (operations(e.body) > 64) return;
    }
    std::optional<uint32_t> variable;
    for (const uint32_t slot : e.body.slots()) {
        if (context.foldable(e.accesses[slot].value)) continue;
        if (variable) return;
        variable = slot;
    }
    if (!variable) return;
    const auto affine = affine_in(e, *variable);
    if (!affine || !reads_constants(context, e, affine->scale)) return;
    if (!affine->shift.empty() && !reads_constants(context, e, affine->shift)) return;
    const size_t after = (affine->scales ? 1 : 0) + (affine->shift.empty() ? 0 : 1);
    if (operations(e.body) <= after) return;

    PatchWriter patch(context, at);
    ExprWriter w(e.extents, e.spatial);
    ScalarBody read;
    read.set_root(read.access(*variable, context.value(e.accesses[*variable].value).dtype));
    ScalarId root = w.copy(e, read, plain_axes(e.spatial));  // an index of it may read other accesses
    if (affine->scales)
        root = w.body().binary(ScalarOp::Mul, root, as_constant(patch, w, e, affine->scale, t, "scale"));
    if (!affine->shift.empty())
        root = w.body().binary(ScalarOp::Add, root, as_constant(patch, w, e, affine->shift, t, "shift"));
    patch.define(p.outputs[0], w.finish(root));
    found.push_back(patch.take());
}

}  // namespace

std::span<const RewriteRule> factor_rewrites() {
    static const std::vector<RewriteRule> rules = {
        {"factor_out_of_sum", "sum_k f_i g_k = f_i sum_k g_k", factor_out_of_sum},
        {"factor_across_sum", "sum_k (a_ik / s_i) b_kj = (sum_k a_ik b_kj) / s_i", factor_across_sum},
        {"scale_into_sum", "s_j (sum_k a_ik b_kj) + t_j = sum_k a_ik (s_j b_kj) + t_j", scale_into_sum},
        {"factor_to_weights", "sum_k (a_ik s_k) B_kj = sum_k a_ik (s_k B_kj), s and B constant", factor_to_weights},
        {"shift_to_bias", "sum_k (a_ik + c_k) B_kj = sum_k a_ik B_kj + (sum_k c_k B_kj), c and B constant",
         shift_to_bias},
        {"fold_affine_chain", "((x + a - m) / s) g + b = x (g / s) + ((a - m) (g / s) + b), all but x constant",
         fold_affine_chain},
    };
    return rules;
}

}  // namespace tilewright
