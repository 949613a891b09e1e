#include "schedule/default/operand_walks.h"

#include <algorithm>

#include "cost/cache_sets.h"
#include "program/analysis/contraction.h"

namespace tilewright {

OperandWalk walk_of(const Program& stages, const TensorExpr& e, ValueId value, const std::vector<Expr>& index,
                    bool result, int lanes) {
    OperandWalk w;
    w.strides = axis_strides(stages, e, value, index);
    w.result = result;
    for (size_t a = 0; a < e.extents.size(); ++a) {
        bool unit = w.strides[a] && w.strides[a]->is_constant(1);
        if (!w.strides[a] && lanes > 1) {
            const auto stride = lane_stride(stages, e, value, index, a, lanes);
            unit = stride && stride->is_constant(1);
        }
        w.unit_lanes.push_back(unit);
    }
    return w;
}

OperandWalks::OperandWalks(const Program& stages_, const TensorExpr& e_, DType out_type_, const Target& target_)
    : stages(stages_), e(e_), out_type(out_type_), target(target_), slots(e_.body.slots()) {
    ValueId out;
    for (const Primitive& p : stages.primitives)
        if (p.expr() == &e) out = p.outputs[0];
    for (const Access& a : e.accesses)
        walks.push_back(walk_of(stages, e, a.value, a.index, false, target.micro_lanes()));
    walks.push_back(walk_of(stages, e, out, result_index(e), true, target.micro_lanes()));
    const auto factors = contraction(e);
    product = factors && factors->reads_widened() && factors->factors[0].read != factors->factors[1].read;
}

int64_t OperandWalks::element_bytes(size_t access) const {
    return static_cast<int64_t>(byte_size(stages.values[e.accesses[access].value].dtype));
}

double OperandWalks::elements(size_t access) const {
    std::vector<int64_t> extents;
    extents.reserve(axes());
    for (size_t a = 0; a < axes(); ++a) extents.push_back(extent(a));
    return static_cast<double>(box_bytes(stages, e.accesses[access], extents)) /
           static_cast<double>(element_bytes(access));
}

double OperandWalks::sum_points() const {
    double points = 1;
    for (size_t r = e.spatial; r < axes(); ++r) points *= static_cast<double>(extent(r));
    return points;
}

bool OperandWalks::too_short_for_lanes(size_t a) const {
    return fixed(a) && e.extents[a].constant() < std::max(2, target.micro_lanes() / 4);
}

bool OperandWalks::reused_along(size_t a, size_t vector) const {
    return std::any_of(slots.begin(), slots.end(),
                       [&](uint32_t k) { return walks[k].depends(vector) && !walks[k].depends(a); });
}

std::optional<OperandWalks::Interleaved> OperandWalks::interleaved_axis(size_t vector) const {
    const int64_t apart = vector < e.spatial && e.reducer == Reducer::None ? result().spread(vector) : 0;
    if (apart < 2) return std::nullopt;
    ValueId out;
    for (const Primitive& p : stages.primitives)
        if (p.expr() == &e) out = p.outputs[0];
    for (size_t u = 0; u < e.spatial; ++u) {
        if (u == vector) continue;
        if (result().unit(u) && e.extents[u].is_constant(apart) && apart >= kLeastInterleaved)
            return Interleaved{u, apart};
        if (result().strides[u] || !fixed(u) || extent(u) % apart != 0) continue;
        const auto within = lane_stride(stages, e, out, result_index(e), u, static_cast<int>(apart));
        if (within && within->is_constant(1)) return Interleaved{u, apart};
    }
    return std::nullopt;
}

std::optional<size_t> OperandWalks::transposed_axis(const OperandWalk& w, size_t vector) const {
    if (e.reducer != Reducer::None || w.result || !w.depends(vector) || w.unit(vector)) return std::nullopt;
    for (size_t u = 0; u < e.spatial; ++u)
        if (u != vector && w.unit(u) && extent(u) >= target.micro_lanes()) return u;
    return std::nullopt;
}

bool panel_collides(const Program& stages, const TensorExpr& e, const OperandWalk& w, size_t vector) {
    constexpr int64_t kElementBytes = 4;  // panels are packed as f32
    constexpr int64_t kLeastSteps = 32, kLeastRows = 128;
    if (!w.unit(vector)) return false;
    int64_t rows = 1;
    for (size_t a = 0; a < e.spatial; ++a)
        if (!w.depends(a)) rows *= guessed_extent(stages, e.extents[a]);
    for (size_t r = e.spatial; r < e.extents.size(); ++r) {
        const int64_t stride = w.stride(r).value_or(0);
        if (stride != 0 && steps_to_same_set(stride * kElementBytes) == 1 &&
            guessed_extent(stages, e.extents[r]) >= kLeastSteps)
            return rows >= kLeastRows;
    }
    return false;
}

namespace {

bool slides_over(const Program& stages, const TensorExpr& e, const Access& access,
                 const std::vector<std::optional<Expr>>& steps, size_t a) {
    for (size_t r = e.spatial; r < e.extents.size(); ++r) {
        if (steps[a] && steps[r] && steps[a]->is_constant() && steps[r]->is_constant()) {
            const int64_t step = std::abs(steps[a]->constant()), inner = std::abs(steps[r]->constant());
            if (step > 0 && inner > 0 && step % inner == 0 && step / inner < guessed_extent(stages, e.extents[r]))
                return true;
            continue;
        }
        for (const Expr& i : access.index)
            if (index_uses({&i, 1}, a) && index_uses({&i, 1}, r)) return true;
    }
    return false;
}

}  // namespace

bool OperandWalks::slides(size_t a) const {
    for (size_t k = 0; k < e.accesses.size(); ++k)
        if (slides_over(stages, e, e.accesses[k], walks[k].strides, a)) return true;
    return false;
}

bool slides(const Program& stages, const TensorExpr& e, size_t a) {
    return std::any_of(e.accesses.begin(), e.accesses.end(), [&](const Access& access) {
        return slides_over(stages, e, access, axis_strides(stages, e, access.value, access.index), a);
    });
}

}  // namespace tilewright
