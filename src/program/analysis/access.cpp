#include "program/analysis/access.h"

#include <algorithm>

namespace tilewright {

std::vector<Expr> row_major_strides(std::span<const Expr> shape) {
    std::vector<Expr> strides(shape.size());
    Expr s = 1;
    for (size_t d = shape.size(); d-- > 0;) {
        strides[d] = s;
        s = s * shape[d];
    }
    return strides;
}

bool uses_load(std::span<const Expr> index) {
    return std::any_of(index.begin(), index.end(), [](Expr x) {
        const std::vector<Var> all = variables(x);
        return std::any_of(all.begin(), all.end(), [](Var v) { return v.kind == VarKind::Load; });
    });
}

std::set<uint32_t> axes_of(std::span<const Expr> exprs) {
    std::set<uint32_t> axes;
    for (const Expr x : exprs)
        for (const Var v : variables(x))
            if (v.kind == VarKind::Axis) axes.insert(v.id);
    return axes;
}

bool index_uses(std::span<const Expr> index, size_t axis) {
    const Var v{VarKind::Axis, static_cast<uint32_t>(axis)};
    return std::any_of(index.begin(), index.end(), [&](Expr i) { return uses(i, v); });
}

namespace {

bool moves_along(const TensorExpr& e, Expr x, size_t axis) {
    const std::vector<Var> all = variables(x);
    return std::any_of(all.begin(), all.end(), [&](Var v) {
        return (v.kind == VarKind::Axis && v.id == axis) ||
               (v.kind == VarKind::Load && tilewright::moves_along(e, e.accesses[v.id], axis));
    });
}

}  // namespace

bool moves_along(const TensorExpr& e, const Access& access, size_t axis) {
    const auto moves = [&](Expr x) { return moves_along(e, x, axis); };
    return std::any_of(access.index.begin(), access.index.end(), moves) ||
           std::any_of(access.valid.begin(), access.valid.end(), moves);
}

bool moves_along(const TensorExpr& e, const ScalarBody& body, ScalarId node, size_t axis) {
    std::vector<bool> moves;  // by node: operands precede their users
    moves.reserve(node.index() + 1);
    for (size_t k = 0; k <= node.index(); ++k) {
        const ScalarNode& n = body[ScalarId(static_cast<uint32_t>(k))];
        bool here = n.op == ScalarOp::Access ? moves_along(e, e.accesses[n.slot], axis)
                                             : n.op == ScalarOp::Index && moves_along(e, n.index, axis);
        for (const ScalarId operand : {n.a, n.b, n.c}) here = here || (operand && moves[operand.index()]);
        moves.push_back(here);
    }
    return moves[node.index()];
}

bool leaves_tensor_behind(const Program& program, const TensorExpr& e, const Access& access, size_t axis) {
    for (size_t d = 0; d < access.index.size(); ++d) {
        const auto linear = linear_in(access.index[d], {VarKind::Axis, static_cast<uint32_t>(axis)});
        if (!linear || !linear->coefficient.is_constant() || linear->coefficient.constant() < 1) continue;
        const Expr behind = linear->coefficient * e.extents[axis] + linear->rest;  // the first point behind the end
        if (prove_nonnegative(simplify(behind - program.values[access.value].shape[d], e.ranges()), e.ranges()))
            return true;
    }
    return false;
}

Expr strided_offset(std::span<const Expr> index, std::span<const Expr> strides) {
    Expr offset = 0;
    for (size_t d = 0; d < index.size(); ++d) offset += index[d] * strides[d];
    return offset;
}

Expr row_major_offset(std::span<const Expr> shape, std::span<const Expr> index) {
    return strided_offset(index, row_major_strides(shape));
}

std::vector<std::optional<Expr>> axis_strides(const Program& stages, const TensorExpr& expr, ValueId value,
                                              std::span<const Expr> index) {
    const Expr offset = simplify(row_major_offset(stages.values[value].shape, index), expr.ranges());
    std::vector<std::optional<Expr>> out = axis_coefficients(offset, expr.extents.size());
    for (auto& stride : out)
        if (stride && !is_uniform(*stride)) stride.reset();
    return out;
}

std::optional<Expr> lane_stride(const Program& stages, const TensorExpr& expr, ValueId value,
                                std::span<const Expr> index, size_t a, int lanes) {
    const size_t n = expr.extents.size();
    Ranges ranges = expr.ranges();
    ranges.axes.push_back({Expr(0), floor_div(expr.extents[a] - 1, lanes)});
    ranges.axes.push_back({Expr(0), Expr(lanes - 1)});
    const Expr offset = row_major_offset(stages.values[value].shape, index);
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

}  // namespace tilewright
