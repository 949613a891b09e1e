#include <algorithm>

#include "base/error.h"
#include "program/analysis/access.h"
#include "schedule/default_schedule.h"

namespace tilewright {

namespace {

Expr offset_of(std::span<const Expr> shape, std::span<const Expr> index) {
    const std::vector<Expr> strides = row_major_strides(shape);
    Expr offset = 0;
    for (size_t d = 0; d < shape.size(); ++d) offset += index[d] * strides[d];
    return offset;
}

bool body_mentions(const ScalarBody& body, Var v) {
    for (const ScalarNode& n : body.nodes())
        if (n.op == ScalarOp::Index && uses(n.index, v)) return true;
    return false;
}

}  // namespace

std::vector<std::optional<Expr>> axis_strides(const Program& stages, const TensorExpr& expr, ValueId value,
                                              std::span<const Expr> index) {
    const Expr offset = simplify(offset_of(stages.values[value].shape, index), expr.ranges());
    std::vector<std::optional<Expr>> out;
    for (size_t a = 0; a < expr.extents.size(); ++a) {
        const auto linear = linear_in(offset, {VarKind::Axis, static_cast<uint32_t>(a)});
        if (linear && is_uniform(linear->coefficient))
            out.push_back(linear->coefficient);
        else
            out.push_back(std::nullopt);
    }
    return out;
}

std::optional<Expr> lane_stride(const Program& stages, const TensorExpr& expr, ValueId value,
                                std::span<const Expr> index, size_t a, int lanes) {
    const size_t n = expr.extents.size();
    Ranges ranges = expr.ranges();
    ranges.axes.push_back({Expr(0), floor_div(expr.extents[a] - 1, lanes)});
    ranges.axes.push_back({Expr(0), Expr(lanes - 1)});
    const Expr offset = offset_of(stages.values[value].shape, index);
    const Expr blocked = simplify(substitute(offset,
                                             [&](Var v) -> std::optional<Expr> {
                                                 if (v.kind == VarKind::Axis && v.id == a)
                                                     return axis(n) * lanes + axis(n + 1);
                                                 return std::nullopt;
                                             }),
                                  ranges);
    const auto linear = linear_in(blocked, {VarKind::Axis, static_cast<uint32_t>(n + 1)});
    if (!linear || !is_uniform(linear->coefficient)) return std::nullopt;
    return linear->coefficient;
}

std::optional<Program> merge_axes(const Program& stages) {
    if (stages.primitives.size() != 1) return std::nullopt;
    Program out = stages;
    Primitive& primitive = out.primitives[PrimitiveId(0)];
    TensorExpr& e = *primitive.expr();
    // One offset per access and one for the result, over the axes.
    std::vector<Expr> offsets;
    for (const Access& a : e.accesses)
        offsets.push_back(simplify(offset_of(stages.values[a.value].shape, a.index), e.ranges()));
    offsets.push_back(simplify(offset_of(stages.values[primitive.outputs[0]].shape, result_index(e)), e.ranges()));
    const auto mentioned = [&](size_t k) {
        const Var v{VarKind::Axis, static_cast<uint32_t>(k)};
        for (const Access& a : e.accesses)
            for (const Expr& c : a.valid)
                if (uses(c, v)) return true;
        return body_mentions(e.body, v) || body_mentions(e.epilogue, v);
    };
    bool merged = false;
    for (size_t j = e.extents.size(); j-- > 1;) {
        const size_t i = j - 1;
        if ((i < e.spatial) != (j < e.spatial) || mentioned(i) || mentioned(j)) continue;
        const Var vi{VarKind::Axis, static_cast<uint32_t>(i)}, vj{VarKind::Axis, static_cast<uint32_t>(j)};
        bool ok = true;
        for (const Expr& o : offsets) {
            const auto li = linear_in(o, vi), lj = linear_in(o, vj);
            ok = ok && li && lj && li->coefficient == lj->coefficient * e.extents[j];
        }
        if (!ok) continue;
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
        const auto rename_body = [&](const ScalarBody& body) {
            if (body.empty()) return body;
            ScalarBody fresh;
            fresh.set_root(fresh.inline_body(body, [&](ScalarBody& into, const ScalarNode& leaf) {
                return leaf.op == ScalarOp::Index ? into.index(rename(leaf.index)) : ScalarId();
            }));
            return fresh;
        };
        e.body = rename_body(e.body);
        e.epilogue = rename_body(e.epilogue);
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
