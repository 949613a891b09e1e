// Combines products: products with a common operand are merged, chains re-associated, axes flattened.

#include <algorithm>

#include "program/analysis/contraction.h"
#include "program/rewrite/algebra.h"
#include "program/rewrite/rules.h"

namespace tilewright {

namespace {

/// A sum of products of two operands.
struct Product {
    const TensorExpr* expr;
    uint32_t left, right;  ///< slots
    const Access& operand(uint32_t slot) const { return expr->accesses[slot]; }
};

std::optional<Product> as_product(const RewriteContext& context, PrimitiveId id) {
    const Primitive& p = context.program().primitives[id];
    const TensorExpr* e = p.expr();
    if (e == nullptr || !is_sum(*e, context.value(p.outputs[0]).dtype) || e->accesses.size() != 2) return std::nullopt;
    const auto c = contraction(*e);
    if (!c || !c->reads_two()) return std::nullopt;
    for (const Access& a : e->accesses)
        if (uses_load(a.index) || (!a.valid.empty() && a.fill != 0)) return std::nullopt;
    return Product{e, *c->factors[0].slot, *c->factors[1].slot};
}

std::set<uint32_t> axes_of_access(const Access& a) {
    std::set<uint32_t> axes = axes_of(a.index);
    axes.merge(axes_of(a.valid));
    return axes;
}

// --- products with a common operand

/// One of the merged products.
struct Member {
    PrimitiveId id;
    Product product;
    uint32_t shared, own;              ///< slots: the common operand and the other one
    std::optional<uint32_t> own_axis;  ///< the axis of the result that the common operand does not use
    std::vector<Expr> to_base;         ///< its axes in terms of the base's
    Expr begin, length;                ///< its slice of the merged axis
};

/// The only axis of the result, longer than 1, that the common operand does not use; false if there are several.
bool find_own_axis(const TensorExpr& e, const std::set<uint32_t>& shared, std::optional<uint32_t>& own) {
    for (uint32_t a = 0; a < e.extents.size(); ++a) {
        if (shared.count(a) != 0 || e.extents[a].is_constant(1)) continue;
        if (a >= e.spatial || own) return false;
        own = a;
    }
    return true;
}

std::optional<Member> member(const RewriteContext& context, PrimitiveId id, uint32_t shared) {
    const auto product = as_product(context, id);
    if (!product) return std::nullopt;
    Member m{id, *product, shared, shared == product->left ? product->right : product->left, {}, {}, 0, 1};
    if (!find_own_axis(*product->expr, axes_of_access(product->operand(shared)), m.own_axis)) return std::nullopt;
    // The concatenation must not be larger than the operands: no windows.
    const Access& own = product->operand(m.own);
    if (!own.valid.empty()) return std::nullopt;
    for (const Expr e : own.index) {
        const auto v = e.as_var();
        if (!is_uniform(e) && !(v && v->kind == VarKind::Axis)) return std::nullopt;
    }
    if (m.own_axis) m.length = product->expr->extents[*m.own_axis];
    return m;
}

/// Fills in `to_base` so that both read the common operand at the same index; false if that is impossible.
bool align(Member& m, const Member& base) {
    const TensorExpr &e = *m.product.expr, &b = *base.product.expr;
    const Access &here = m.product.operand(m.shared), &there = base.product.operand(base.shared);
    if (here.value != there.value || here.valid.size() != there.valid.size()) return false;
    std::vector<std::optional<uint32_t>> to(e.extents.size());
    std::set<uint32_t> taken;
    const auto pair = [&](uint32_t from, uint32_t onto) {
        if (to[from]) return *to[from] == onto;
        to[from] = onto;
        return taken.insert(onto).second;
    };
    for (size_t d = 0; d < here.index.size(); ++d) {
        const auto v = here.index[d].as_var(), u = there.index[d].as_var();
        if (v && u && v->kind == VarKind::Axis && u->kind == VarKind::Axis && !pair(v->id, u->id)) return false;
    }
    for (const uint32_t a : axes_of_access(here))
        if (!to[a] && !pair(a, a)) return false;
    m.to_base.assign(e.extents.size(), Expr(0));
    for (uint32_t a = 0; a < e.extents.size(); ++a) {
        if (!to[a]) continue;
        if (*to[a] >= b.extents.size() || !(e.extents[a] == b.extents[*to[a]])) return false;
        if ((a < e.spatial) != (*to[a] < b.spatial)) return false;
        m.to_base[a] = axis(*to[a]);
    }
    for (size_t d = 0; d < here.index.size(); ++d)
        if (!(substitute_axes(here.index[d], m.to_base) == there.index[d])) return false;
    for (size_t k = 0; k < here.valid.size(); ++k)
        if (!(substitute_axes(here.valid[k], m.to_base) == there.valid[k])) return false;
    return true;
}

/// The concatenation of the operands along `merged`, an axis of the base:
///     both[k, j] = select(j < 8, b[k, j], c[k, j - 8])
/// Operands with a fill value (ones) become constants: both[k, j] = select(j < 8, b[k, j], 1), which is a pad.
std::pair<ValueId, std::vector<Expr>> put_side_by_side(const RewriteContext& context, PatchWriter& patch,
                                                       const std::vector<Member>& members, const TensorExpr& base,
                                                       uint32_t merged, Expr total) {
    std::vector<uint32_t> dims;  // axes of the base, in the order in which the operands use them
    const auto add = [&](Expr e) {
        for (const uint32_t a : axes_of(std::vector<Expr>{e}))
            if (std::find(dims.begin(), dims.end(), a) == dims.end()) dims.push_back(a);
    };
    for (const bool with_own : {true, false})  // operands with the merged axis determine its position
        for (const Member& m : members)
            if (m.own_axis.has_value() == with_own)
                for (const Expr e : m.product.operand(m.own).index)
                    add(e == (m.own_axis ? axis(*m.own_axis) : Expr(-1)) ? axis(merged)
                                                                         : substitute_axes(e, m.to_base));
    add(axis(merged));
    std::vector<Expr> extents, place(base.extents.size(), Expr(0)), index;
    for (const uint32_t a : dims) {
        place[a] = axis(extents.size());
        extents.push_back(a == merged ? total : base.extents[a]);
        index.push_back(axis(a));
    }
    const size_t rank = extents.size();
    ExprWriter w(std::move(extents), rank);
    const Expr at = place[merged];
    const DType t = base.body.dtype();
    ScalarId chain;
    for (auto m = members.rbegin(); m != members.rend(); ++m) {
        std::vector<Expr> own_place = m->to_base;
        for (Expr& e : own_place) e = substitute_axes(e, place);
        if (m->own_axis) own_place[*m->own_axis] = at - m->begin;
        const Access& a = m->product.operand(m->own);
        std::vector<Expr> part_index;
        for (const Expr e : a.index) part_index.push_back(substitute_axes(e, own_place));
        const ScalarId element = w.read(a.value, t, part_index, {at - m->begin, m->begin + m->length - 1 - at}, 0);
        if (!chain) {
            chain = element;
            continue;
        }
        const ScalarId left = w.body().index(at - (m->begin + m->length));
        chain =
            w.body().select(w.body().binary(ScalarOp::Lt, left, w.body().int_constant(DType::I64, 0)), element, chain);
    }
    TensorExpr e = w.finish(chain);
    for (uint32_t slot = 0; slot < e.accesses.size();) {
        const auto number = context.fill(e.accesses[slot].value);
        if (number && e.accesses.size() > 1) {
            e = with_number(e, slot, *number);
            slot = 0;  // slots were renumbered
        } else {
            ++slot;
        }
    }
    return {patch.make(std::move(e), t, "side_by_side"), index};
}

// a b, a c  =  the slices of a [b c]
void merge_products(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const auto first = as_product(context, at);
    if (!first) return;
    for (const uint32_t shared : {first->left, first->right}) {
        std::vector<Member> members;
        bool begun_earlier = false;
        auto self = member(context, at, shared);
        if (!self || !self->own_axis) continue;
        self->to_base = plain_axes(first->expr->extents.size());
        const Member base = *self;
        const DType t = first->expr->body.dtype();
        for (const PrimitiveId id : context.consumers(first->operand(shared).value)) {
            if (id == at) {
                members.push_back(base);
                continue;
            }
            const auto other = as_product(context, id);
            if (!other || other->expr->body.dtype() != t) continue;
            for (const uint32_t slot : {other->left, other->right}) {
                auto m = member(context, id, slot);
                if (!m || !align(*m, base)) continue;
                if (m->product.operand(m->own) == base.product.operand(base.own)) continue;  // the same product
                const bool independent = std::none_of(members.begin(), members.end(), [&](const Member& o) {
                    return context.depends(id, o.id) || context.depends(o.id, id);
                });
                if (!independent || context.depends(at, id) || context.depends(id, at)) continue;
                begun_earlier = begun_earlier || (id < at && m->own_axis);
                members.push_back(*m);
                break;
            }
        }
        if (members.size() < 2 || begun_earlier) continue;  // the match at the first product covers all
        // Operands without an axis of their own (sums) come last: [b 1].
        std::stable_partition(members.begin(), members.end(), [](const Member& m) { return m.own_axis.has_value(); });
        Expr total = 0;
        for (Member& m : members) {
            m.begin = total;
            total = total + m.length;
        }
        const TensorExpr& e = *base.product.expr;
        PatchWriter patch(context, at);
        const auto [operand, index] = put_side_by_side(context, patch, members, e, *base.own_axis, total);
        std::vector<Expr> extents = e.extents;
        extents[*base.own_axis] = total;
        ExprWriter w(extents, e.spatial, Reducer::Sum);
        const Access& a = base.product.operand(base.shared);
        const ScalarId x = w.read(a.value, t, a.index, a.valid, a.fill), y = w.read(operand, t, index);
        const bool shared_first = base.shared == base.product.left;
        const ScalarId product = w.body().binary(ScalarOp::Mul, shared_first ? x : y, shared_first ? y : x);
        const ValueId result = patch.make(w.finish(product), t, "merged");
        for (const Member& m : members) {
            const TensorExpr& was = *m.product.expr;
            std::vector<Expr> from(e.spatial, Expr(0));
            for (uint32_t s = 0; s < was.spatial; ++s)
                if (const auto v = m.to_base[s].as_var(); v && m.own_axis != s) from[v->id] = axis(s);
            from[*base.own_axis] = m.begin + (m.own_axis ? axis(*m.own_axis) : Expr(0));
            ExprWriter part({was.extents.begin(), was.extents.begin() + static_cast<std::ptrdiff_t>(was.spatial)},
                            was.spatial);
            patch.define(context.program().primitives[m.id].outputs[0], part.finish(part.read(result, t, from)));
        }
        found.push_back(patch.take());
    }
}

// --- chains

/// An operand of a product of three, over all axes.
struct Operand {
    const Access* access;
    std::vector<Expr> axes;  ///< the new axes of its product's axes
    std::set<uint32_t> used;
};

ScalarId read(ExprWriter& w, const Operand& o, DType t, std::span<const Expr> onto) {
    const auto moved = [&](Expr e) { return substitute_axes(substitute_axes(e, o.axes), onto); };
    Access a = *o.access;
    for (Expr& e : a.index) e = moved(e);
    for (Expr& e : a.valid) e = moved(e);
    return w.read(a.value, t, a.index, a.valid, a.fill);
}

// (a b) c  =  a (b c),  b and a being either of the two
void reassociate(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const auto outer = as_product(context, at);
    if (!outer) return;
    const TensorExpr& e = *outer->expr;
    const DType t = e.body.dtype();
    for (const uint32_t slot : {outer->left, outer->right}) {
        const Access& read_inner = outer->operand(slot);
        const PrimitiveId inner_id = context.producer_id(read_inner.value);
        const auto inner = inner_id ? as_product(context, inner_id) : std::nullopt;
        if (!inner || !read_inner.valid.empty()) continue;
        if (inner->expr->body.dtype() != t) continue;
        const TensorExpr& f = *inner->expr;
        // All axes: the outer product's, then the reduction axes of the inner one.
        std::vector<Expr> extents = e.extents, inner_axes = read_inner.index;
        for (size_t a = f.spatial; a < f.extents.size(); ++a) {
            inner_axes.push_back(axis(extents.size()));
            extents.push_back(f.extents[a]);
        }
        const auto operand = [&](const Access& a, const std::vector<Expr>& axes) {
            Operand o{&a, axes, {}};
            for (const std::vector<Expr>& list : {a.index, a.valid})
                for (const Expr x : list) o.used.merge(axes_of(std::vector<Expr>{substitute_axes(x, axes)}));
            return o;
        };
        const Operand c =
            operand(outer->operand(slot == outer->left ? outer->right : outer->left), plain_axes(extents.size()));
        const Operand ab[] = {operand(inner->operand(inner->left), inner_axes),
                              operand(inner->operand(inner->right), inner_axes)};
        for (const size_t alone : {0, 1}) {
            const Operand &a = ab[alone], &b = ab[1 - alone];
            // Axes that only b and c use are summed first.
            std::vector<uint32_t> first, rest, batch, other;
            for (uint32_t x = 0; x < extents.size(); ++x) {
                const bool pair_uses = b.used.count(x) != 0 || c.used.count(x) != 0;
                const bool sum = x >= e.spatial;
                if (sum && a.used.count(x) == 0)
                    first.push_back(x);
                else if (sum)
                    rest.push_back(x);
                else if (pair_uses)
                    (a.used.count(x) != 0 ? batch : other).push_back(x);
            }
            if (first.empty() || rest.empty()) continue;
            std::vector<uint32_t> dims = batch;
            for (const uint32_t x : rest)
                if (b.used.count(x) != 0 || c.used.count(x) != 0) dims.push_back(x);
            dims.insert(dims.end(), other.begin(), other.end());
            std::vector<Expr> pair_extents, onto(extents.size(), Expr(0)), index;
            for (const uint32_t x : dims) {
                onto[x] = axis(pair_extents.size());
                pair_extents.push_back(extents[x]);
                index.push_back(
                    axis(x < e.spatial ? x : e.spatial + (std::find(rest.begin(), rest.end(), x) - rest.begin())));
            }
            const size_t rank = pair_extents.size();
            for (const uint32_t x : first) {
                onto[x] = axis(pair_extents.size());
                pair_extents.push_back(extents[x]);
            }
            PatchWriter patch(context, at);
            ExprWriter pair(pair_extents, rank, Reducer::Sum);
            const ScalarId left = read(pair, b, t, onto), right = read(pair, c, t, onto);
            const ValueId bc = patch.make(pair.finish(pair.body().binary(ScalarOp::Mul, left, right)), t, "pair");

            std::vector<Expr> whole(e.extents.begin(), e.extents.begin() + static_cast<std::ptrdiff_t>(e.spatial));
            std::vector<Expr> onto_whole = plain_axes(e.spatial);
            onto_whole.resize(extents.size(), Expr(0));
            for (const uint32_t x : rest) {
                onto_whole[x] = axis(whole.size());
                whole.push_back(extents[x]);
            }
            ExprWriter w(std::move(whole), e.spatial, Reducer::Sum);
            const ScalarId x = read(w, a, t, onto_whole), y = w.read(bc, t, index);
            patch.define(context.program().primitives[at].outputs[0], w.finish(w.body().binary(ScalarOp::Mul, x, y)));
            found.push_back(patch.take());
        }
    }
}

// --- axes

/// Whether the access reads the whole dimensions d and d + 1 at axes a and a + 1 and uses these axes nowhere else.
std::optional<size_t> neighbours(const RewriteContext& context, const TensorExpr& e, const Access& access, uint32_t a) {
    const auto d = bare_dim(context, e, access, a), next = bare_dim(context, e, access, a + 1);
    if (!d || !next || *next != *d + 1 || axes_of(access.valid).count(a) != 0 ||
        axes_of(access.valid).count(a + 1) != 0)
        return std::nullopt;
    return d;
}

// x[n, c, h, w] with 1x1 weights: sum_c w_oc x_ncp over p = (h, w), which is a matrix product
void flatten_axes(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const auto product = as_product(context, at);
    if (!product) return;
    const TensorExpr& e = *product->expr;
    const DType t = e.body.dtype();
    for (uint32_t a = 0; a + 1 < e.spatial; ++a) {
        if (e.extents[a].is_constant(1) || e.extents[a + 1].is_constant(1)) continue;
        std::optional<std::pair<uint32_t, size_t>> where;  // the only operand with both axes, and the dimension
        bool fits = true;
        for (const uint32_t slot : {product->left, product->right}) {
            const std::set<uint32_t> used = axes_of_access(product->operand(slot));
            if (used.count(a) == 0 && used.count(a + 1) == 0) continue;
            const auto d = neighbours(context, e, product->operand(slot), a);
            fits = fits && d && !where;
            if (d) where = {slot, *d};
        }
        if (!fits || !where) continue;
        const auto [slot, d] = *where;
        const Expr inner = e.extents[a + 1];
        PatchWriter patch(context, at);
        // The operand with both dimensions merged.
        std::vector<Expr> shape = context.value(product->operand(slot).value).shape, index;
        shape[d] = shape[d] * shape[d + 1];
        shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(d) + 1);
        for (size_t k = 0; k < shape.size(); ++k) {
            if (k == d) {
                index.push_back(floor_div(axis(k), inner));
                index.push_back(mod(axis(k), inner));
            } else {
                index.push_back(axis(k));
            }
        }
        ExprWriter view(shape, shape.size());
        const ValueId flat =
            patch.make(view.finish(view.read(context, product->operand(slot).value, index)), t, "flat");
        // The product with one axis less.
        std::vector<Expr> extents, onto;
        size_t summed = e.extents.size() - e.spatial;
        for (uint32_t x = 0; x < e.extents.size(); ++x) {
            if (x == a + 1 || (x >= e.spatial && e.extents[x].is_constant(1) && summed > 1)) {
                onto.emplace_back(0);
                if (x >= e.spatial) --summed;
                continue;
            }
            onto.push_back(axis(extents.size()));
            extents.push_back(x == a ? e.extents[a] * inner : e.extents[x]);
        }
        ExprWriter w(extents, e.spatial - 1, Reducer::Sum);
        const auto element = [&](uint32_t k) {
            const Access& access = product->operand(k);
            std::vector<Expr> at_axes, valid;
            for (size_t i = 0; i < access.index.size(); ++i)
                if (k != slot || i != d + 1) at_axes.push_back(substitute_axes(access.index[i], onto));
            for (const Expr c : access.valid) valid.push_back(substitute_axes(c, onto));
            return w.read(k == slot ? flat : access.value, t, at_axes, valid, access.fill);
        };
        const ScalarId left = element(product->left), right = element(product->right);
        const ValueId result = patch.make(w.finish(w.body().binary(ScalarOp::Mul, left, right)), t, "flattened");
        std::vector<Expr> back;
        for (uint32_t x = 0; x < e.spatial; ++x) {
            if (x == a + 1) continue;
            back.push_back(x == a ? axis(a) * inner + axis(a + 1) : axis(x));
        }
        ExprWriter out({e.extents.begin(), e.extents.begin() + static_cast<std::ptrdiff_t>(e.spatial)}, e.spatial);
        patch.define(context.program().primitives[at].outputs[0], out.finish(out.read(result, t, back)));
        found.push_back(patch.take());
    }
}

}  // namespace

std::span<const RewriteRule> product_rewrites() {
    static const std::vector<RewriteRule> rules = {
        {"merge_products", "a b, a c = the parts of a [b c]", merge_products},
        {"reassociate", "(a b) c = a (b c)", reassociate},
        {"flatten_axes", "sum_c w_oc x_nchw = sum_c w_oc x_ncp, p = (h, w)", flatten_axes},
    };
    return rules;
}

}  // namespace tilewright
