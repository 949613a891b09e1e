#include "program/interpret_plan.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tilewright::interp {

namespace {

template <class F>
void for_each_form(Plan& plan, const F& f) {
    for (Register& r : plan.registers)
        if (r.kind != Register::Kind::Load) {
            f(r.a);
            f(r.b);
        }
    for (AccessPlan& a : plan.accesses) {
        if (!a.used) continue;
        f(a.address);
        for (Check& c : a.checks) f(c.index);
        for (Form& c : a.conditions) f(c);
    }
    for (Form& form : plan.body_index)
        if (!form.axes.empty()) f(form);
    for (Form& form : plan.epilogue_index)
        if (!form.axes.empty()) f(form);
}

/// Removes unit axes, and merges axes that every form uses as one: i0, i1 in i0 * extent(i1) + i1.
void simplify_axes(Plan& plan) {
    const auto erase_axis = [&](size_t k) {
        for_each_form(plan, [&](Form& f) { f.axes.erase(f.axes.begin() + static_cast<std::ptrdiff_t>(k)); });
        plan.extents.erase(plan.extents.begin() + static_cast<std::ptrdiff_t>(k));
        if (k < plan.spatial) --plan.spatial;
    };
    for (size_t k = plan.extents.size(); k-- > 0;)
        if (plan.extents[k] == 1) erase_axis(k);
    for (size_t k = plan.extents.size(); k-- > 1;) {
        if (k == plan.spatial) continue;  // a spatial axis is never merged with a reduction axis
        bool together = true;
        for_each_form(plan, [&](const Form& f) {
            int64_t outer = 0;
            together =
                together && !__builtin_mul_overflow(f.axes[k], plan.extents[k], &outer) && f.axes[k - 1] == outer;
        });
        if (!together) continue;
        plan.extents[k] *= plan.extents[k - 1];
        erase_axis(k - 1);
    }
}

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

void choose_lanes(Plan& plan) {
    if (plan.spatial == 0) {  // a row of one element
        plan.extents.insert(plan.extents.begin(), 1);
        for_each_form(plan, [](Form& f) { f.axes.insert(f.axes.begin(), 0); });
        plan.spatial = 1;
    }
    const auto cheapest = [&](size_t begin, size_t end, size_t best) {
        for (size_t k = begin; k < end; ++k)
            if (lane_cost(plan, k) < lane_cost(plan, best)) best = k;
        return best;
    };
    plan.row_axis = cheapest(0, plan.spatial, plan.spatial - 1);
    plan.lane_axis = cheapest(plan.spatial, plan.extents.size(), plan.row_axis);
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
    return plan;
}

}  // namespace tilewright::interp
