// Moves views (transposes, slices, pads, reshapes, broadcasts) and concatenations across other primitives.

#include <algorithm>

#include "index/map.h"
#include "program/rewrite/algebra.h"
#include "program/rewrite/rules.h"
#include "program/transform/inline.h"
#include "program/transform/tidy.h"

namespace tilewright {

namespace {

// f(view(x))  =  (f o view)(x): readers of a view read its source
void view_into_reader(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    for (uint32_t slot = 0; slot < p.expr()->accesses.size(); ++slot) {
        const ValueId v = p.expr()->accesses[slot].value;
        const TensorExpr* view = context.producer(v);
        if (view == nullptr || !is_view(*view)) continue;
        auto through = inline_producer(*p.expr(), slot, *view, context.value(v));
        if (!through) continue;
        PatchWriter patch(context, at);
        patch.define(p.outputs[0], std::move(*through));
        found.push_back(patch.take());
    }
}

// view(f(x))  =  f(view(x)), f a map
void map_into_view(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    if (!is_view(*p.expr())) return;
    const ValueId v = p.expr()->accesses[0].value;
    const TensorExpr* map = context.producer(v);
    if (map == nullptr || !is_map(*map, context.value(v).dtype) || is_view(*map) || !context.read_once(v)) return;
    auto inlined = inline_producer(*p.expr(), 0, *map, context.value(v));
    if (!inlined) return;
    PatchWriter patch(context, at);
    patch.define(p.outputs[0], std::move(*inlined));
    found.push_back(patch.take());
}

bool linear(const std::vector<Expr>& index) {
    return std::all_of(index.begin(), index.end(), [](Expr i) {
        const std::vector<Var> all = variables(i);
        return std::all_of(all.begin(), all.end(), [&](Var v) { return linear_in(i, v).has_value(); });
    });
}

// view(sum_k a_ik b_kj)  =  sum_k a_v(i)k b_kv(j); a zero pad becomes a condition of every operand
void sum_into_view(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    const TensorExpr& e = *p.expr();
    if (!is_view(e)) return;
    const Access& read = e.accesses[0];
    const TensorExpr* sum = context.producer(read.value);
    const DType t = context.value(read.value).dtype;
    if (sum == nullptr || !is_sum(*sum, t) || !context.read_once(read.value) || uses_load(read.index)) return;
    std::vector<Expr> extents = e.extents, onto = read.index;
    for (size_t a = sum->spatial; a < sum->extents.size(); ++a) {
        onto.push_back(axis(extents.size()));
        extents.push_back(sum->extents[a]);
    }
    TensorExpr out = *sum;
    out.extents = extents;
    out.spatial = e.spatial;
    if (!read.valid.empty()) {
        // Where the view is not valid, one factor reads 0.
        const std::vector<Factor> all = factors(sum->body, sum->body.root());
        const bool some = std::any_of(all.begin(), all.end(), [&](const Factor& f) {
            return !f.under && bare_slot(sum->body, f.node).has_value();
        });
        const bool divided = std::any_of(all.begin(), all.end(), [](const Factor& f) { return f.under; });
        if (read.fill != 0 || !some || divided) return;
        for (const Access& a : out.accesses)
            if ((!a.valid.empty() && a.fill != 0) || !is_real(context.value(a.value).dtype)) return;
    }
    out = map_indices(out, [&](Expr x) { return substitute_axes(x, onto); });
    // Weights indexed by a remainder of a point (the phases of a transposed convolution) cannot be packed: every point
    // would gather its own.
    if (std::any_of(out.accesses.begin(), out.accesses.end(), [&](const Access& a) {
            return context.program().constants.count(a.value) != 0 && !linear(a.index);
        }))
        return;
    for (Access& a : out.accesses) {
        a.valid.insert(a.valid.begin(), read.valid.begin(), read.valid.end());
        if (!read.valid.empty()) a.fill = 0;
    }
    PatchWriter patch(context, at);
    patch.define(p.outputs[0], tidy(out));
    found.push_back(patch.take());
}

// f(view(x), y)  =  view(f(x, view^-1(y))), the view being a bijection (transposes and reshapes), f a map
void view_after_map(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    const TensorExpr& e = *p.expr();
    const DType t = context.value(p.outputs[0]).dtype;
    if (!is_map(e, t) || is_view(e)) return;
    for (uint32_t slot = 0; slot < e.accesses.size(); ++slot) {
        const Access& read = e.accesses[slot];
        const TensorExpr* view = context.producer(read.value);
        if (view == nullptr || !is_view(*view) || !view->accesses[0].valid.empty() || !read.valid.empty()) continue;
        if (!at_own_point(e, read) || uses_load(view->accesses[0].index)) continue;
        const ValueId source = view->accesses[0].value;
        const std::vector<Expr>& shape = context.value(source).shape;
        const auto inverse = invert(IndexMap{view->extents, view->accesses[0].index}, shape);
        if (!inverse || !is_real(context.value(source).dtype)) continue;
        TensorExpr through = e;  // over the source's dimensions
        through.extents = shape;
        through.spatial = shape.size();
        through = map_indices(through, [&](Expr x) { return substitute_axes(x, inverse->results); });
        through.accesses[slot] = {source, plain_axes(shape.size()), {}, 0};
        PatchWriter patch(context, at);
        const ValueId mapped = patch.make(tidy(through), t, "mapped");
        ExprWriter w(e.extents, e.spatial);
        patch.define(p.outputs[0], w.finish(w.read(mapped, t, view->accesses[0].index)));
        found.push_back(patch.take());
    }
}

/// Concatenation of parts along one axis: select(i < 2, @0, select(i < 5, @1, @2)).
struct Concat {
    uint32_t along = 0;
    struct Part {
        uint32_t slot;
        Expr begin, end;
    };
    std::vector<Part> parts;
};

std::optional<Concat> as_concat(const TensorExpr& e) {
    if (e.reducer != Reducer::None || !e.epilogue.empty() || !e.output_index.empty()) return std::nullopt;
    Concat out;
    bool first = true;
    Expr begin = 0;
    ScalarId at = e.body.root();
    while (e.body[at].op == ScalarOp::Select) {
        const ScalarNode &n = e.body[at], &condition = e.body[n.a];
        const auto slot = bare_slot(e.body, n.b);
        if (!slot || condition.op != ScalarOp::Lt || e.body[condition.a].op != ScalarOp::Index ||
            e.body[condition.b].op != ScalarOp::Const || e.body[condition.b].int_value != 0)
            return std::nullopt;
        const Expr left = e.body[condition.a].index;
        std::vector<Var> axes;
        for (const Var v : variables(left))
            if (v.kind == VarKind::Axis) axes.push_back(v);
        if (axes.size() != 1 || (!first && axes[0].id != out.along)) return std::nullopt;
        out.along = axes[0].id;
        first = false;
        const Expr end = axis(out.along) - left;
        if (!is_uniform(end)) return std::nullopt;
        out.parts.push_back({*slot, begin, end});
        begin = end;
        at = n.c;
    }
    const auto last = bare_slot(e.body, at);
    if (first || !last) return std::nullopt;
    out.parts.push_back({*last, begin, e.extents[out.along]});
    return out;
}

/// Each part is read whole: at i - begin along the axis, at its own axis in other dimensions.
bool plain_parts(const RewriteContext& context, const TensorExpr& e, const Concat& c) {
    return std::all_of(c.parts.begin(), c.parts.end(), [&](const Concat::Part& p) {
        const Access& a = e.accesses[p.slot];
        std::vector<Expr> expected = plain_axes(e.spatial), shape = e.extents;
        expected[c.along] = axis(c.along) - p.begin;
        shape[c.along] = p.end - p.begin;
        return same_index(e.extents, a.index, expected) && context.value(a.value).shape == shape;
    });
}

/// Writes the concatenation along `along`, each part at its own element.
ValueId concat(const RewriteContext& context, PatchWriter& patch, const std::vector<ValueId>& parts, uint32_t along) {
    std::vector<Expr> extents = context.value(parts[0]).shape;
    std::vector<Expr> begins;
    Expr total = 0;
    for (const ValueId v : parts) {
        begins.push_back(total);
        total = total + context.value(v).shape[along];
    }
    extents[along] = total;
    ExprWriter w(extents, extents.size());
    const DType t = context.value(parts[0]).dtype;
    ScalarId chain;
    for (size_t k = parts.size(); k-- > 0;) {
        std::vector<Expr> index = plain_axes(extents.size());
        index[along] = axis(along) - begins[k];
        const Expr end = begins[k] + context.value(parts[k]).shape[along];
        const ScalarId x = w.read(parts[k], t, index, {axis(along) - begins[k], end - 1 - axis(along)}, 0);
        if (!chain) {
            chain = x;
            continue;
        }
        const ScalarId left = w.body().index(axis(along) - end);
        chain = w.body().select(w.body().binary(ScalarOp::Lt, left, w.body().int_constant(DType::I64, 0)), x, chain);
    }
    return patch.make(w.finish(chain), t, "concat");
}

// [f(x) f(y)]  =  f([x y]), f a map of one operand
void concat_of_maps(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    const TensorExpr& e = *p.expr();
    const auto c = as_concat(e);
    if (!c || !plain_parts(context, e, *c)) return;
    std::vector<ValueId> operands;
    const TensorExpr* first = nullptr;
    for (const Concat::Part& part : c->parts) {
        const ValueId v = e.accesses[part.slot].value;
        const TensorExpr* map = context.producer(v);
        if (map == nullptr || !is_map(*map, context.value(v).dtype) || is_view(*map) || map->accesses.size() != 1)
            return;
        const Access& a = map->accesses[0];
        if (!at_own_point(*map, a) || context.value(a.value).shape != map->extents) return;
        if (first != nullptr && !(map->body == first->body)) return;
        for (const ScalarNode& n : map->body.nodes())
            if (n.op == ScalarOp::Index) return;  // depends on the position
        if (!operands.empty() && context.value(a.value).dtype != context.value(operands[0]).dtype) return;
        first = map;
        operands.push_back(a.value);
    }
    PatchWriter patch(context, at);
    const ValueId whole = concat(context, patch, operands, c->along);
    TensorExpr f = *first;
    f.extents = e.extents;
    f.accesses[0] = {whole, plain_axes(e.spatial), {}, 0};
    patch.define(p.outputs[0], std::move(f));
    found.push_back(patch.take());
}

// [x_0:2 x_2:5]  =  x_0:5, through views as well
void concat_of_slices(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    TensorExpr e = *p.expr();
    const auto outer = as_concat(e);
    if (!outer) return;
    for (uint32_t slot = 0; slot < e.accesses.size(); ++slot) {
        // A view with conditions of a part: the part is read only where they hold, so they can be dropped afterwards.
        const TensorExpr* view = context.producer(e.accesses[slot].value);
        if (view == nullptr || !is_view(*view) || !view->accesses[0].valid.empty()) continue;
        if (auto through = inline_producer(e, slot, *view, context.value(e.accesses[slot].value))) e = *through;
    }
    const auto c = as_concat(e);
    if (!c) return;
    // A part of one element gives a single position, not how the index varies along the axis.
    const auto longest = std::find_if(c->parts.begin(), c->parts.end(),
                                      [](const Concat::Part& part) { return !(part.end - part.begin).is_constant(1); });
    if (longest == c->parts.end()) return;
    const Access& first = e.accesses[longest->slot];
    for (const Concat::Part& part : c->parts) {
        const Access& a = e.accesses[part.slot];
        const auto at_place = [&](Expr x) {
            return (part.end - part.begin).is_constant(1) ? substitute(x,
                                                                       [&](Var v) -> std::optional<Expr> {
                                                                           if (v == Var{VarKind::Axis, c->along})
                                                                               return part.begin;
                                                                           return std::nullopt;
                                                                       })
                                                          : x;
        };
        if (a.value != first.value) return;
        for (size_t d = 0; d < a.index.size(); ++d)
            if (!(at_place(a.index[d]) == at_place(first.index[d]))) return;
    }
    // All parts are read at the same position, so their conditions are equal.
    const Ranges ranges = e.ranges();
    const std::vector<Expr>& shape = context.value(first.value).shape;
    for (size_t d = 0; d < shape.size(); ++d)
        if (!prove_nonnegative(first.index[d], ranges) || !prove_less(first.index[d], shape[d], ranges)) return;
    PatchWriter patch(context, at);
    ExprWriter w(e.extents, e.spatial);
    patch.define(p.outputs[0], w.finish(w.read(context, first.value, first.index)));
    found.push_back(patch.take());
}

/// `length` elements of a value starting at `begin` along one dimension.
ValueId slice(const RewriteContext& context, PatchWriter& patch, ValueId v, size_t along, const Expr& begin,
              const Expr& length) {
    std::vector<Expr> extents = context.value(v).shape;
    extents[along] = length;
    std::vector<Expr> index = plain_axes(extents.size());
    index[along] = index[along] + begin;
    ExprWriter w(extents, extents.size());
    const DType t = context.value(v).dtype;
    return patch.make(w.finish(w.read(v, t, index)), t, "slice");
}

// sum_k [x y]_ik w_kj  =  sum_k x_ik w_kj + sum_k y_ik w_(k+n)j
// Slices of constant weights become separate constants, which can be packed.
void product_of_concat(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    const TensorExpr& e = *p.expr();
    const DType t = context.value(p.outputs[0]).dtype;
    if (!is_sum(e, t)) return;
    for (uint32_t slot = 0; slot < e.accesses.size(); ++slot) {
        const Access& read = e.accesses[slot];
        const TensorExpr* parts = context.producer(read.value);
        const auto c = parts != nullptr ? as_concat(*parts) : std::nullopt;
        if (!c || !plain_parts(context, *parts, *c)) continue;
        const auto v = read.index[c->along].as_var();
        if (!v || v->kind != VarKind::Axis || v->id < e.spatial || !(e.extents[v->id] == parts->extents[c->along]))
            continue;
        PatchWriter patch(context, at);
        std::vector<ValueId> sums;
        for (const Concat::Part& part : c->parts) {
            TensorExpr one = e;
            const Expr length = part.end - part.begin;
            one.extents[v->id] = length;
            for (Access& a : one.accesses) {
                const auto plain = std::find(a.index.begin(), a.index.end(), axis(v->id));
                if (&a - one.accesses.data() == slot || plain == a.index.end() ||
                    context.program().constants.count(a.value) == 0)
                    continue;
                const auto along = static_cast<size_t>(plain - a.index.begin());
                a.value = slice(context, patch, a.value, along, part.begin, length);
                *plain = axis(v->id) - part.begin;  // cancelled by the substitution for the axis below
            }
            one = map_indices(one, [&](Expr x) {
                return substitute(
                    x, [&](Var u) { return u == *v ? std::optional(axis(v->id) + part.begin) : std::nullopt; });
            });
            one.accesses[slot].value = parts->accesses[part.slot].value;
            one.accesses[slot].index[c->along] = axis(v->id);
            sums.push_back(patch.make(tidy(one), t, "part"));
        }
        ExprWriter w({e.extents.begin(), e.extents.begin() + static_cast<std::ptrdiff_t>(e.spatial)}, e.spatial);
        ScalarId sum;
        for (const ValueId s : sums) {
            const ScalarId x = w.read(s, t, plain_axes(e.spatial));
            sum = sum ? w.body().binary(ScalarOp::Add, sum, x) : x;
        }
        patch.define(p.outputs[0], w.finish(sum));
        found.push_back(patch.take());
    }
}

// x w + y v  =  [x y] [w v], concatenated along the reduction axis
void sum_of_products(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    const TensorExpr& e = *p.expr();
    const DType t = context.value(p.outputs[0]).dtype;
    if (!is_map(e, t) || e.body[e.body.root()].op != ScalarOp::Add || e.accesses.size() != 2) return;
    const TensorExpr* terms[2] = {};
    for (const size_t k : {0, 1}) {
        const ScalarNode& n = e.body[e.body.root()];
        const auto slot = bare_slot(e.body, k == 0 ? n.a : n.b);
        if (!slot || !at_own_point(e, e.accesses[*slot])) return;
        terms[k] = context.producer(e.accesses[*slot].value);
        if (terms[k] == nullptr || !is_sum(*terms[k], t) || terms[k]->accesses.size() != 2 ||
            terms[k]->extents.size() != terms[k]->spatial + 1 || !context.read_once(e.accesses[*slot].value))
            return;
    }
    const TensorExpr &l = *terms[0], &r = *terms[1];
    const auto k_axis = static_cast<uint32_t>(l.spatial);
    if (!(l.body == r.body) || factors(l.body, l.body.root()).size() != 2 || l.spatial != r.spatial ||
        !std::equal(l.extents.begin(), l.extents.end() - 1, r.extents.begin()))
        return;
    PatchWriter patch(context, at);
    TensorExpr joined = l;
    for (const uint32_t slot : {0u, 1u}) {
        const Access &a = l.accesses[slot], &b = r.accesses[slot];
        if (a.index != b.index || !a.valid.empty() || !b.valid.empty()) return;
        const auto d = bare_dim(context, l, a, k_axis);
        if (!d || bare_dim(context, r, b, k_axis) != d) return;
        std::vector<Expr> left = context.value(a.value).shape, right = context.value(b.value).shape;
        left[*d] = right[*d] = 0;
        if (left != right || context.value(a.value).dtype != t || context.value(b.value).dtype != t) return;
        joined.accesses[slot].value = concat(context, patch, {a.value, b.value}, static_cast<uint32_t>(*d));
    }
    joined.extents[k_axis] = l.extents[k_axis] + r.extents[k_axis];
    patch.define(p.outputs[0], std::move(joined));
    found.push_back(patch.take());
}

}  // namespace

std::span<const RewriteRule> layout_rewrites() {
    static const std::vector<RewriteRule> rules = {
        {"view_into_reader", "f(view(x)) = (f o view)(x)", view_into_reader},
        {"map_into_view", "view(f(x)) = f(view(x)), f a map", map_into_view},
        {"sum_into_view", "view(sum_k a_ik b_kj) = sum_k a_v(i)k b_kv(j)", sum_into_view},
        {"view_after_map", "f(view(x), y) = view(f(x, view^-1(y))), the view a bijection", view_after_map},
        {"concat_of_maps", "[f(x) f(y)] = f([x y]), f a map", concat_of_maps},
        {"concat_of_slices", "[x_0:n x_n:m] = x_0:m", concat_of_slices},
        {"product_of_concat", "[x y] w = x w_0:n + y w_n:m", product_of_concat},
        {"sum_of_products", "x w + y v = [x y] [w v]", sum_of_products},
    };
    return rules;
}

}  // namespace tilewright
