#include "program/transform/contiguous_axes.h"

#include <functional>

#include "program/analysis/access.h"

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

}  // namespace

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
        // i and j become axis i, with extent the product; later axes move down by one.
        const auto rename = [&](Expr x) {
            return substitute(x, [&](Var v) -> std::optional<Expr> {
                if (v.kind != VarKind::Axis) return std::nullopt;
                if (v.id == i) return Expr(0);
                if (v.id == j) return axis(i);
                if (v.id > j) return axis(v.id - 1);
                return std::nullopt;
            });
        };
        for (Expr& o : offsets) o = rename(o);
        for (Access& a : e.accesses)
            for (Expr& c : a.valid) c = rename(c);
        e.body = with_renamed_indices(e.body, rename);
        e.epilogue = with_renamed_indices(e.epilogue, rename);
        e.extents[i] = e.extents[i] * e.extents[j];
        e.extents.erase(e.extents.begin() + static_cast<std::ptrdiff_t>(j));
        if (j < e.spatial) --e.spatial;
        merged = true;
    }
    if (!merged) return std::nullopt;
    for (size_t k = 0; k < e.accesses.size(); ++k) e.accesses[k].index = {offsets[k]};
    e.output_index = {offsets.back()};
    for (Value& v : out.values) v.shape = {product(v.shape)};
    return out;
}

}  // namespace tilewright
