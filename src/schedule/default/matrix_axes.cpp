#include "schedule/default/matrix_axes.h"

#include <algorithm>

#include "program/analysis/contraction.h"
#include "schedule/default/steps.h"

namespace tilewright {

namespace {

/// The instruction's type for the stored types of both factors.
std::optional<MatrixType> type_of(const OperandWalks& w, const Contraction& c, MatrixForm form) {
    const auto stored = [&](size_t k) { return w.stages.values[w.e.accesses[*c.factors[k].read].value].dtype; };
    const DType first = stored(0), second = stored(1);
    if (c.type == DType::F32 && first == DType::BF16 && second == DType::BF16) return MatrixType::BF16;
    if (form == MatrixForm::Dot && c.type == DType::F32 && first == DType::F16 && second == DType::F16)
        return MatrixType::F16;
    const bool bytes = (first == DType::U8 && second == DType::I8) || (first == DType::I8 && second == DType::U8);
    return c.type == DType::I32 && bytes ? std::optional(MatrixType::I8) : std::nullopt;
}

/// Columns: the innermost axis along which the result is contiguous and one factor does not move.
std::optional<size_t> columns_of(const OperandWalks& w, const Contraction& c, int64_t lanes) {
    for (size_t a = w.e.spatial; a-- > 0;) {
        if (!w.result().unit(a) || !w.fixed(a) || w.extent(a) < lanes) continue;
        const bool first = w.walks[*c.factors[0].read].depends(a), second = w.walks[*c.factors[1].read].depends(a);
        if (first != second) return a;
    }
    return std::nullopt;
}

int64_t step_along(int64_t extent, const MatrixUnit& unit) {
    if (unit.tile()) return tile_step(extent, unit.type);
    return dot_products_step(extent, unit.type);
}

/// Whether the axis numbers pairs of terms (orchestrate/bf16_terms.h), which share tiles of both factors.
bool is_of_terms(const OperandWalks& w, const MatrixAxes& axes, size_t r) {
    constexpr int64_t kMostPairs = 8;
    const auto has_stride = [&](uint32_t slot) { return w.walks[slot].strides[r].has_value(); };
    return axes.unit.tile() && w.fixed(r) && w.extent(r) <= kMostPairs && !has_stride(axes.slots.left) &&
           !has_stride(axes.slots.right);
}

}  // namespace

std::optional<MatrixAxes> matrix_axes(const OperandWalks& w, MatrixForm form) {
    const auto c = contraction(w.e);
    const auto type = c && w.product ? type_of(w, *c, form) : std::nullopt;
    if (!type) return std::nullopt;
    MatrixAxes t;
    t.lanes = form == MatrixForm::Tile ? kTileColumns : w.target.micro_lanes();
    const auto columns = columns_of(w, *c, t.lanes);
    if (!columns) return std::nullopt;
    t.unit = {*type, 0, *columns, 0, form};
    const bool second = w.walks[*c->factors[1].read].depends(*columns);
    t.slots = {*c->factors[second ? 0 : 1].read, *c->factors[second ? 1 : 0].read};
    const OperandWalk &left = w.walks[t.slots.left], &right = w.walks[t.slots.right];
    std::vector<size_t> rows;
    for (size_t a = w.e.spatial; a-- > 0;)
        if (a != *columns && left.depends(a) && !right.depends(a) && left.strides[a] && w.extent(a) > 1)
            rows.push_back(a);
    if (rows.empty()) return std::nullopt;
    t.unit.rows = rows[0];
    if (rows.size() > 1 && w.fixed(rows[0]) && w.fixed(rows[1])) t.outer_rows = rows[1];
    for (size_t r = w.axes(); r-- > w.e.spatial && t.step == 0;)
        if (w.fixed(r) && left.depends(r) && right.depends(r)) {
            t.unit.sum = r;
            t.step = step_along(w.extent(r), t.unit);
            if (t.step != 0 && !runs_along_sum(w.stages, w.e, t.slots.left, t.unit, t.step)) t.step = 0;
        }
    if (t.step == 0) return std::nullopt;
    const bool constant = w.stages.is_constant(w.e.accesses[t.slots.right].value);
    if (!constant && !pairs_along_sum(w.stages, w.e, t.slots.right, t.unit, t.lanes)) return std::nullopt;
    return t;
}

void finish_matrix_micro(const OperandWalks& w, const MatrixAxes& axes, StageChoice& choice) {
    Micro& micro = choice.micro;
    micro.matrix = axes.unit;
    micro.vector_axis = axes.unit.columns;
    micro.lanes = axes.lanes;
    micro.registers[axes.unit.sum] = axes.step;
    choice.contraction = true;
    choose_loop_order(w, choice);
    for (size_t r = w.e.spatial; r < w.axes(); ++r)
        if (is_of_terms(w, axes, r)) {
            micro.registers[r] = w.extent(r);
            std::stable_partition(micro.order.begin(), micro.order.end(), [&](size_t a) { return a != r; });
        }
    // A step of the reduction is a run of the left factor.
    std::stable_partition(micro.order.begin(), micro.order.end(), [&](size_t a) { return a != axes.unit.sum; });
    if (!w.e.accesses[axes.slots.left].valid.empty()) choice.loads.push_back(axes.slots.left);
}

}  // namespace tilewright
