#include "program/transform/contiguous_axes.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "program/analysis/access.h"
#include "program/transform/tidy.h"

namespace tilewright {

namespace {

bool body_mentions(const ScalarBody& body, Var v) {
    for (const ScalarNode& n : body.nodes())
        if (n.op == ScalarOp::Index && uses(n.index, v)) return true;
    return false;
}

/// Whether a condition or a number of the body depends on the axis: then it stays an axis of its own.
bool used_beside_indices(const TensorExpr& e, size_t k) {
    const Var v{VarKind::Axis, static_cast<uint32_t>(k)};
    for (const Access& a : e.accesses)
        for (const Expr& c : a.valid)
            if (uses(c, v)) return true;
    return body_mentions(e.body, v) || body_mentions(e.epilogue, v);
}

/// Whether every offset has i and j only as i * extent(j) + j.
bool walked_as_one(const std::vector<Expr>& offsets, Var i, Var j, Expr inner_extent) {
    for (const Expr& o : offsets) {
        const auto outer = linear_in(o, i), inner = linear_in(o, j);
        if (!outer || !inner || outer->coefficient != inner->coefficient * inner_extent) return false;
    }
    return true;
}

ScalarBody with_renamed_indices(const ScalarBody& body, const std::function<Expr(Expr)>& rename) {
    if (body.empty()) return body;
    ScalarBody fresh;
    fresh.set_root(fresh.inline_body(body, [&](ScalarBody& into, const ScalarNode& leaf) {
        return leaf.op == ScalarOp::Index ? into.index(rename(leaf.index)) : ScalarId();
    }));
    return fresh;
}

/// `x` where axes i and i + 1 are one, axis i: later axes move down.
Expr with_one_axis(Expr x, size_t i) {
    return substitute(x, [&](Var v) -> std::optional<Expr> {
        if (v.kind != VarKind::Axis) return std::nullopt;
        if (v.id == i) return Expr(0);
        if (v.id == i + 1) return axis(i);
        if (v.id > i + 1) return axis(v.id - 1);
        return std::nullopt;
    });
}

/// Axes i and i + 1 become axis i, with extent the product.
void merge_axes(TensorExpr& e, size_t i, const std::function<Expr(Expr)>& rename) {
    for (Access& a : e.accesses) {
        for (Expr& c : a.index) c = rename(c);
        for (Expr& c : a.valid) c = rename(c);
    }
    for (Expr& c : e.output_index) c = rename(c);
    e.body = with_renamed_indices(e.body, rename);
    e.epilogue = with_renamed_indices(e.epilogue, rename);
    e.extents[i] = e.extents[i] * e.extents[i + 1];
    e.extents.erase(e.extents.begin() + static_cast<std::ptrdiff_t>(i + 1));
    if (i + 1 < e.spatial) --e.spatial;
}

/// The spatial axes in the order of the result's dimensions.
TensorExpr in_order_of_result(const TensorExpr& e) {
    const std::vector<Expr> out = result_index(e);
    const auto dimension = [&](size_t a) {
        size_t d = 0;
        while (d < out.size() && !uses(out[d], {VarKind::Axis, static_cast<uint32_t>(a)})) ++d;
        return d;
    };
    std::vector<size_t> order(e.spatial);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return dimension(a) < dimension(b); });
    std::vector<Expr> by(e.extents.size());
    TensorExpr sorted = e;
    for (size_t k = 0; k < e.extents.size(); ++k) {
        const size_t a = k < e.spatial ? order[k] : k;
        by[a] = axis(k);
        sorted.extents[k] = e.extents[a];
    }
    sorted.output_index = out;
    return map_indices(sorted, [&](Expr x) { return substitute_axes(x, by); });
}

/// The dimension of each value that axes i and i + 1 index as one: [.., i, i + 1, ..], the latter whole. Nothing where
/// a value is indexed by them otherwise.
std::optional<std::map<ValueId, size_t>> shared_dimensions(const Program& program, const Primitive& p, size_t i) {
    const TensorExpr& e = *p.expr();
    std::map<ValueId, std::optional<size_t>> found;
    const auto look = [&](ValueId v, const std::vector<Expr>& index) {
        std::optional<size_t> at;
        for (size_t d = 0; d < index.size(); ++d) {
            if (!uses(index[d], {VarKind::Axis, static_cast<uint32_t>(i)}) &&
                !uses(index[d], {VarKind::Axis, static_cast<uint32_t>(i + 1)}))
                continue;
            const bool whole = d + 1 < index.size() && index[d] == axis(i) && index[d + 1] == axis(i + 1) &&
                               program.values[v].shape[d + 1] == e.extents[i + 1];
            if (at || !whole) return false;
            at = d++;
        }
        const auto [it, fresh] = found.emplace(v, at);
        return fresh || it->second == at;
    };
    for (const Access& a : e.accesses)
        if (!look(a.value, a.index)) return std::nullopt;
    if (!look(p.outputs[0], e.output_index)) return std::nullopt;
    std::map<ValueId, size_t> out;
    for (const auto& [v, d] : found)
        if (d) out.emplace(v, *d);
    return out;
}

}  // namespace

std::optional<Program> merge_dimensions(const Program& program) {
    if (program.primitives.size() != 1 || program.primitives[PrimitiveId(0)].expr() == nullptr) return std::nullopt;
    Program out = program;
    Primitive& p = out.primitives[PrimitiveId(0)];
    TensorExpr& e = *p.expr();
    e = in_order_of_result(e);
    for (size_t j = e.spatial; j-- > 1;) {
        const size_t i = j - 1;
        if (used_beside_indices(e, i) || used_beside_indices(e, j)) continue;
        const auto dimensions = shared_dimensions(out, p, i);
        if (!dimensions) continue;
        const auto without = [](std::vector<Expr>& list, size_t d, Expr merged) {
            list[d] = merged;
            list.erase(list.begin() + static_cast<std::ptrdiff_t>(d + 1));
        };
        const auto merge = [&](ValueId v, std::vector<Expr>& index) {
            if (const auto d = dimensions->find(v); d != dimensions->end()) without(index, d->second, axis(j));
        };
        for (Access& a : e.accesses) merge(a.value, a.index);
        merge(p.outputs[0], e.output_index);
        for (const auto& [v, d] : *dimensions) {
            std::vector<Expr>& shape = out.values[v].shape;
            without(shape, d, shape[d] * shape[d + 1]);
        }
        merge_axes(e, i, [&](Expr x) { return with_one_axis(x, i); });
    }
    bool identity = e.output_index.size() == e.spatial;
    for (size_t k = 0; identity && k < e.spatial; ++k) identity = e.output_index[k] == axis(k);
    if (identity) e.output_index.clear();
    return out;
}

std::optional<Program> merge_contiguous_axes(const Program& program) {
    if (program.primitives.size() != 1) return std::nullopt;
    Program out = program;
    Primitive& primitive = out.primitives[PrimitiveId(0)];
    TensorExpr& e = *primitive.expr();
    // One offset per access and one for the result, over the axes.
    std::vector<Expr> offsets;
    for (const Access& a : e.accesses)
        offsets.push_back(simplify(row_major_offset(program.values[a.value].shape, a.index), e.ranges()));
    offsets.push_back(
        simplify(row_major_offset(program.values[primitive.outputs[0]].shape, result_index(e)), e.ranges()));
    bool merged = false;
    for (size_t j = e.extents.size(); j-- > 1;) {
        const size_t i = j - 1;
        if ((i < e.spatial) != (j < e.spatial) || used_beside_indices(e, i) || used_beside_indices(e, j)) continue;
        const Var vi{VarKind::Axis, static_cast<uint32_t>(i)}, vj{VarKind::Axis, static_cast<uint32_t>(j)};
        if (!walked_as_one(offsets, vi, vj, e.extents[j])) continue;
        const auto rename = [&](Expr x) { return with_one_axis(x, i); };
        for (Expr& o : offsets) o = rename(o);
        for (Access& a : e.accesses) a.index.clear();
        e.output_index.clear();
        merge_axes(e, i, rename);
        merged = true;
    }
    if (!merged) return std::nullopt;
    for (size_t k = 0; k < e.accesses.size(); ++k) e.accesses[k].index = {offsets[k]};
    e.output_index = {offsets.back()};
    for (Value& v : out.values) v.shape = {product(v.shape)};
    return out;
}

}  // namespace tilewright
