#include "program/transform/axes.h"

#include <algorithm>

#include "base/error.h"
#include "program/transform/tidy.h"

namespace tilewright {

namespace {

/// All index expressions of `expr`, collected for analyses.
std::vector<Expr> all_indices(const TensorExpr& expr) {
    std::vector<Expr> all;
    map_indices(expr, [&](Expr e) {
        all.push_back(e);
        return e;
    });
    return all;
}

TensorExpr with_output_index(TensorExpr expr) {
    if (expr.output_index.empty())
        for (size_t k = 0; k < expr.spatial; ++k) expr.output_index.push_back(axis(k));
    return expr;
}

/// Drops an output_index that is the identity.
TensorExpr without_identity(TensorExpr expr) {
    bool identity = expr.output_index.size() == expr.spatial;
    for (size_t k = 0; identity && k < expr.spatial; ++k) identity = expr.output_index[k] == axis(k);
    if (identity) expr.output_index.clear();
    return expr;
}

/// Substitutes axes: axis k becomes by[k], over axes of the new `extents`.
TensorExpr with_axes(const TensorExpr& expr, const std::vector<Expr>& by, std::vector<Expr> extents, size_t spatial) {
    TensorExpr out = map_indices(with_output_index(expr), [&](Expr e) { return substitute_axes(e, by); });
    out.extents = std::move(extents);
    out.spatial = spatial;
    return out;
}

TensorExpr replace_axes(const TensorExpr& expr, const std::vector<Expr>& by, std::vector<Expr> extents,
                        size_t spatial) {
    return without_identity(tidy(with_axes(expr, by, std::move(extents), spatial)));
}

/// A divisor by which an axis can be split: `axis(k) // c` or `axis(k) % c` where c divides the extent.
struct Split {
    size_t axis = 0;
    Expr inner;
};

void find_splits(Expr e, const std::vector<Expr>& extents, std::vector<Split>& found) {
    for (const Term& t : e.terms())
        for (const Atom* a : t.atoms) {
            if (a->kind == Atom::Kind::Var) continue;
            find_splits(a->a, extents, found);
            find_splits(a->b, extents, found);
            if (a->kind != Atom::Kind::FloorDiv && a->kind != Atom::Kind::Mod) continue;
            const auto v = a->a.as_var();
            if (!v || v->kind != VarKind::Axis || v->id >= extents.size() || !is_uniform(a->b)) continue;
            const Expr extent = extents[v->id];
            if (a->b == extent || !prove_positive(a->b, {})) continue;
            if (floor_div(extent, a->b) * a->b == extent) found.push_back({v->id, a->b});
        }
}

/// The first divided axis, with its largest divisor: smaller ones then divide one of the halves.
std::optional<Split> next_split(const TensorExpr& expr) {
    std::vector<Split> found;
    for (const Expr e : all_indices(expr)) find_splits(e, expr.extents, found);
    if (found.empty()) return std::nullopt;
    const auto larger = [](const Split& a, const Split& b) {
        if (a.axis != b.axis) return a.axis < b.axis;
        if (a.inner.is_constant() && b.inner.is_constant()) return a.inner.constant() > b.inner.constant();
        return a.inner.text() < b.inner.text();
    };
    return *std::min_element(found.begin(), found.end(), larger);
}

/// Removes all unit axes at once: tensors may have thousands. None if there are none.
std::optional<TensorExpr> without_points(const TensorExpr& expr) {
    std::vector<Expr> by, extents;
    size_t spatial = expr.spatial;
    for (size_t a = 0; a < expr.extents.size(); ++a) {
        // The last reduction axis stays, because a reduction needs one.
        const bool last = a >= expr.spatial && a + 1 == expr.extents.size() && extents.size() == spatial;
        const bool removed = expr.extents[a].is_constant(1) && !last;
        by.push_back(removed ? Expr(0) : axis(extents.size()));
        if (!removed) extents.push_back(expr.extents[a]);
        if (removed && a < expr.spatial) --spatial;
    }
    if (extents.size() == expr.extents.size()) return std::nullopt;
    return replace_axes(expr, by, std::move(extents), spatial);
}

/// Whether axes k and k + 1 appear as axis(k) * extent(k + 1) + axis(k + 1) only.
bool appear_as_one(const std::vector<Expr>& indices, const std::vector<Expr>& extents, size_t k) {
    const Var outer{VarKind::Axis, static_cast<uint32_t>(k)}, inner{VarKind::Axis, static_cast<uint32_t>(k + 1)};
    return std::all_of(indices.begin(), indices.end(), [&](Expr e) {
        const auto by_outer = linear_in(e, outer), by_inner = linear_in(e, inner);
        return by_outer && by_inner && by_outer->coefficient == by_inner->coefficient * extents[k + 1] &&
               !uses(by_inner->coefficient, outer) && !uses(by_outer->coefficient, inner);
    });
}

std::optional<size_t> axes_to_merge(const TensorExpr& expr) {
    const std::vector<Expr> indices = all_indices(with_output_index(expr));
    for (size_t k = 0; k + 1 < expr.extents.size(); ++k)
        if (k + 1 != expr.spatial && appear_as_one(indices, expr.extents, k)) return k;
    return std::nullopt;
}

/// Merges axes k and k + 1: the outer one becomes 0, the inner one runs over both, since all expressions are linear in
/// them.
TensorExpr merge_axes(const TensorExpr& expr, size_t k) {
    std::vector<Expr> by, extents;
    for (size_t a = 0; a < expr.extents.size(); ++a) {
        by.push_back(a == k ? Expr(0) : axis(extents.size()));
        if (a != k) extents.push_back(a == k + 1 ? expr.extents[k] * expr.extents[a] : expr.extents[a]);
    }
    return replace_axes(expr, by, std::move(extents), expr.spatial - (k < expr.spatial ? 1 : 0));
}

}  // namespace

TensorExpr split_axis_only(const TensorExpr& expr, size_t k, Expr inner) {
    TW_CHECK(k < expr.extents.size(), "axis {} of {}", k, expr.extents.size());
    const Expr outer = floor_div(expr.extents[k], inner);
    TW_CHECK(outer * inner == expr.extents[k], "{} does not divide {}", inner.text(), expr.extents[k].text());
    std::vector<Expr> by, extents;
    for (size_t a = 0; a < expr.extents.size(); ++a) {
        if (a == k) {
            by.push_back(axis(k) * inner + axis(k + 1));
            extents.insert(extents.end(), {outer, inner});
        } else {
            by.push_back(axis(extents.size()));
            extents.push_back(expr.extents[a]);
        }
    }
    return with_axes(expr, by, std::move(extents), expr.spatial + (k < expr.spatial ? 1 : 0));
}

TensorExpr split_axis(const TensorExpr& expr, size_t k, Expr inner) {
    return without_identity(tidy(split_axis_only(expr, k, inner)));
}

TensorExpr normalize_axes(const TensorExpr& expr) {
    TensorExpr out = tidy(expr);
    while (true) {
        if (const auto split = next_split(out))
            out = split_axis(out, split->axis, split->inner);
        else if (auto fewer = without_points(out))
            out = std::move(*fewer);
        else if (const auto pair = axes_to_merge(out))
            out = merge_axes(out, *pair);
        else
            return out;
    }
}

}  // namespace tilewright
