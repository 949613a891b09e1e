// The operands that are copied before use, and their copies.

#include <algorithm>

#include "schedule/default/steps.h"

namespace tilewright {

namespace {

bool single_index_condition(const Access& access, Expr condition) {
    return std::any_of(access.index.begin(), access.index.end(),
                       [&](Expr i) { return is_uniform(condition - i) || is_uniform(condition + i); });
}

bool affine_access(const Access& access) {
    for (const Expr& i : access.index)
        for (const Var v : variables(i)) {
            if (v.kind == VarKind::Load) return false;
            if (v.kind != VarKind::Axis) continue;
            const auto linear = linear_in(i, v);
            if (!linear || !linear->coefficient.is_constant()) return false;
        }
    return true;
}

/// Packs a loaded operand so that lanes are contiguous: the dimension indexed by the vector axis becomes the last one,
/// in blocks of the register tile. [n, k] -> split(0, 32) reorder(0, 2, 1): [n/32, k, 32]. `panels`: the blocks are
/// outermost. [k, n] -> split(1, 32) reorder(1, 0, 2).
Layout pack_for_lanes(const Access& a, size_t vector, int64_t block, bool panels) {
    std::optional<size_t> dim;
    for (size_t d = 0; d < a.index.size(); ++d)
        if (index_uses({&a.index[d], 1}, vector)) dim = d;
    Layout layout;
    if (!dim) return layout;
    const size_t rank = a.index.size();
    const auto alone = a.index[*dim].as_var();
    if (!alone) {
        // A window slides along the dimension, and blocks would separate its elements.
        layout::Reorder reorder;
        for (size_t d = 0; d < rank; ++d)
            if (d != *dim) reorder.permutation.push_back(d);
        reorder.permutation.push_back(*dim);
        layout.primitives.emplace_back(reorder);
        return layout;
    }
    layout.primitives.emplace_back(layout::Split{*dim, block});
    layout::Reorder reorder;
    if (panels) reorder.permutation.push_back(*dim);
    for (size_t d = 0; d <= rank; ++d)
        if (d != *dim + 1 && !(panels && d == *dim)) reorder.permutation.push_back(d);
    reorder.permutation.push_back(*dim + 1);
    layout.primitives.emplace_back(reorder);
    return layout;
}

}  // namespace

std::vector<size_t> choose_loads(const OperandWalks& w, size_t vector) {
    std::vector<size_t> loads;
    for (size_t i = 0; i < w.e.accesses.size(); ++i) {
        const Access& a = w.e.accesses[i];
        const bool in_body = std::find(w.slots.begin(), w.slots.end(), static_cast<uint32_t>(i)) != w.slots.end();
        if (!in_body || !affine_access(a)) continue;
        const bool decidable =
            std::all_of(a.valid.begin(), a.valid.end(), [&](Expr c) { return single_index_condition(a, c); });
        const bool strided = w.walks[i].depends(vector) && !w.walks[i].unit(vector);
        if (decidable && (!a.valid.empty() || strided || panel_collides(w.stages, w.e, w.walks[i], vector)))
            loads.push_back(i);
    }
    return loads;
}

std::vector<Stmt> make_loads(const Program& stages, PrimitiveId id, const std::vector<size_t>& loads,
                             const Micro& micro, std::optional<size_t> panels) {
    const TensorExpr& expr = *stages.primitives[id].expr();
    std::vector<Stmt> out;
    for (const size_t i : loads) {
        Load load;
        load.stage = id;
        load.access = i;
        const OperandWalk w =
            walk_of(stages, expr, expr.accesses[i].value, expr.accesses[i].index, false, static_cast<int>(micro.lanes));
        const size_t along = panels.value_or(*micro.vector_axis);
        if (w.depends(along) && (panels || !w.unit(along) || panel_collides(stages, expr, w, along)))
            load.layout = pack_for_lanes(expr.accesses[i], along, std::max<int64_t>(1, micro.registers[along]),
                                         panels.has_value());
        out.push_back(Stmt{load});
    }
    return out;
}

}  // namespace tilewright
