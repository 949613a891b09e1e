#include "program/interpret_plan.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "program/interpret_axes.h"

namespace tilewright::interp {

namespace {

/// Lanes of a reduction are faster than rows of fewer points.
constexpr int64_t kShortRow = 16;

/// Appends the remaining checks: those decided by the ranges are dropped.
Form plan_index(IndexForms& forms, std::span<const Expr> index, std::span<const int64_t> shape,
                std::vector<Check>& checks) {
    TW_CHECK(index.size() == shape.size(), "{} indices into a tensor of rank {}", index.size(), shape.size());
    Form address = forms.form(0);
    Expr flat = 0;
    int64_t stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
        flat += index[d] * stride;
        Form f = forms.form(index[d]);
        if (!forms.range(f).within(0, shape[d] - 1)) checks.push_back({std::move(f), shape[d], d});
        stride *= std::max<int64_t>(shape[d], 1);
    }
    return forms.form(flat);
}

/// Marks access k and the accesses that its index loads.
void mark_used(const TensorExpr& expr, size_t k, std::vector<AccessPlan>& accesses) {
    TW_CHECK(k < accesses.size(), "access {} of {}", k, accesses.size());
    if (accesses[k].used) return;
    accesses[k].used = true;
    const auto mark = [&](Expr e) {
        for (const Var v : variables(e))
            if (v.kind == VarKind::Load) {
                TW_CHECK(v.id < k, "access {} uses load {}", k, v.id);
                mark_used(expr, v.id, accesses);
            }
    };
    for (const Expr e : expr.accesses[k].index) mark(e);
    for (const Expr e : expr.accesses[k].valid) mark(e);
}

std::vector<Form> plan_index_nodes(IndexForms& forms, const TensorExpr& expr, const ScalarBody& body,
                                   std::vector<AccessPlan>& accesses) {
    std::vector<Form> result(body.nodes().size());
    for (const ScalarId id : body.nodes().ids())
        if (body[id].op == ScalarOp::Index) {
            for (const Var v : variables(body[id].index))
                if (v.kind == VarKind::Load) mark_used(expr, v.id, accesses);
            result[id.index()] = forms.form(body[id].index);
        }
    return result;
}

/// Relative cost of a run along `axis`: an estimate for choosing the lane axis.
double lane_cost(const Plan& plan, size_t axis) {
    double per_lane = 0.2;
    for (const AccessPlan& a : plan.accesses) {
        if (!a.used) continue;
        const int64_t step = a.address.axes[axis];
        per_lane += step == 0 ? 0.2 : step == 1 ? 0.5 : std::abs(step) < 16 ? 1.0 : 2.5;
        per_lane += static_cast<double>(a.address.registers.size());
    }
    const auto length = static_cast<double>(std::min(plan.extents[axis], kLanes));
    return per_lane + 40 / length;
}

size_t cheapest_lanes(const Plan& plan, size_t begin, size_t end, size_t best) {
    for (size_t k = begin; k < end; ++k)
        if (lane_cost(plan, k) < lane_cost(plan, best)) best = k;
    return best;
}

void choose_lanes(Plan& plan) {
    if (plan.spatial == 0) insert_unit_axis(plan);  // a row of one element
    plan.row_axis = cheapest_lanes(plan, 0, plan.spatial, plan.spatial - 1);
    plan.lane_axis = cheapest_lanes(plan, plan.spatial, plan.extents.size(), plan.row_axis);
}

/// Whether a number that the body reads has an index that is not affine.
bool body_gathers(const Plan& plan) {
    const auto registers = [](const Form& f) { return !f.registers.empty(); };
    const std::vector<uint32_t> slots = plan.body->slots();
    return std::any_of(slots.begin(), slots.end(), [&](uint32_t slot) {
        const AccessPlan& a = plan.accesses[slot];
        return registers(a.address) || std::any_of(a.conditions.begin(), a.conditions.end(), registers) ||
               std::any_of(a.checks.begin(), a.checks.end(), [&](const Check& c) { return registers(c.index); });
    });
}

/// Splits axes that layouts address in blocks, so that indices are affine. Results keep their bits: lanes of a spatial
/// axis add one point of the reduction after the other, whether or not its axes are split. Lanes of a reduction axis
/// become its innermost loop, which adds in the same order; they stay where the plan adds products in partial sums
/// (dot_product), and where rows are too short to be lanes.
void split_divided_axes(Plan& plan) {
    if (std::none_of(plan.registers.begin(), plan.registers.end(), [](const Register& r) { return r.divides(); }))
        return;
    const bool along_reduction = plan.lane_axis != plan.row_axis;
    if (along_reduction && !body_gathers(plan)) return;
    Plan split = plan;
    if (along_reduction) move_last(split, plan.lane_axis);
    if (!split_axes(split)) return;
    simplify_axes(split);
    if (split.spatial == 0) return;
    const size_t row = cheapest_lanes(split, 0, split.spatial, split.spatial - 1);
    if (along_reduction && split.extents[row] < kShortRow) return;
    split.row_axis = split.lane_axis = row;
    plan = std::move(split);
}

/// Decodes f16, bf16 and smaller floats once if elements are read more than about once.
Tensor widened(const Tensor& t, int64_t points) {
    if (!is_float(t.dtype()) || t.dtype() == DType::F32 || t.dtype() == DType::F64) return t;
    if (t.count() / 4 > points) return t;
    Tensor wide(DType::F32, t.shape(), false);
    float* to = wide.as_mutable<float>().data();
    for (int64_t i = 0; i < t.count(); ++i) to[i] = static_cast<float>(t.get(i));
    return wide;
}

}  // namespace

Plan make_plan(const TensorExpr& expr, std::span<const Tensor> operands, std::span<const int64_t> extents,
               const Tensor& out, const Bindings& bindings) {
    Plan plan;
    plan.extents.assign(extents.begin(), extents.end());
    plan.spatial = expr.spatial;
    plan.body = &expr.body;
    plan.epilogue = expr.epilogue.empty() ? nullptr : &expr.epilogue;
    plan.reducer = expr.reducer;
    plan.accesses.resize(expr.accesses.size());

    // Forms need extents of at least one point; the body of an empty reduction is never evaluated.
    std::vector<int64_t> at_least_one(extents.begin(), extents.end());
    for (int64_t& e : at_least_one) e = std::max<int64_t>(e, 1);
    int64_t points = 1;
    bool empty = false;
    for (const int64_t e : extents) {
        points = points > INT64_MAX / std::max<int64_t>(e, 1) ? INT64_MAX : points * std::max<int64_t>(e, 1);
        empty = empty || e == 0;
    }
    IndexForms forms(at_least_one, bindings);
    if (!empty)
        for (const uint32_t slot : expr.body.slots()) mark_used(expr, slot, plan.accesses);
    plan.body_index = plan_index_nodes(forms, expr, expr.body, plan.accesses);
    if (plan.epilogue != nullptr) {
        for (const uint32_t slot : plan.epilogue->slots()) mark_used(expr, slot, plan.accesses);
        plan.epilogue_index = plan_index_nodes(forms, expr, expr.epilogue, plan.accesses);
    }
    for (size_t k = 0; k < expr.accesses.size(); ++k) {
        AccessPlan& a = plan.accesses[k];
        if (!a.used) continue;
        const Access& access = expr.accesses[k];
        a.tensor = widened(operands[k], points);
        a.dtype = compute_type(a.tensor.dtype());
        a.fill = scalar_from_double(a.dtype, access.fill);
        a.address = plan_index(forms, access.index, a.tensor.shape(), a.checks);
        for (const Expr e : access.valid) {
            Form f = forms.form(e);
            if (forms.range(f).lo < 0) a.conditions.push_back(std::move(f));
        }
    }
    AccessPlan& write = plan.accesses.emplace_back();
    write.used = true;
    std::vector<Expr> index = expr.output_index;
    if (index.empty())
        for (size_t k = 0; k < expr.spatial; ++k) index.push_back(axis(k));
    write.address = plan_index(forms, index, out.shape(), write.checks);
    plan.registers = std::move(forms.registers());
    simplify_axes(plan);
    choose_lanes(plan);
    split_divided_axes(plan);
    return plan;
}

}  // namespace tilewright::interp
