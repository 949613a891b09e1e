#include "program/interpret_axes.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tilewright::interp {

namespace {

/// Every form outside of registers.
template <class F>
void for_each_use(Plan& plan, const F& f) {
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

template <class F>
void for_each_form(Plan& plan, const F& f) {
    for (Register& r : plan.registers)
        if (r.kind != Register::Kind::Load) {
            f(r.a);
            f(r.b);
        }
    for_each_use(plan, f);
}

std::ptrdiff_t at(size_t k) { return static_cast<std::ptrdiff_t>(k); }

}  // namespace

void simplify_axes(Plan& plan) {
    const auto erase_axis = [&](size_t k) {
        for_each_form(plan, [&](Form& f) { f.axes.erase(f.axes.begin() + at(k)); });
        plan.extents.erase(plan.extents.begin() + at(k));
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

void insert_unit_axis(Plan& plan) {
    for_each_form(plan, [](Form& f) { f.axes.insert(f.axes.begin(), 0); });
    plan.extents.insert(plan.extents.begin(), 1);
    ++plan.spatial;
}

void move_last(Plan& plan, size_t k) {
    const auto rotate = [k](std::vector<int64_t>& v) {
        std::rotate(v.begin() + at(k), v.begin() + at(k + 1), v.end());
    };
    for_each_form(plan, [&](Form& f) { rotate(f.axes); });
    rotate(plan.extents);
}

namespace {

/// by * quotient + rest, where `rest` has what `by` does not divide.
struct Divided {
    Form quotient, rest;
};

Divided divided(const Form& form, int64_t by) {
    Divided d;
    d.quotient.constant = floor_div(form.constant, by);
    d.rest.constant = floor_mod(form.constant, by);
    d.quotient.axes.assign(form.axes.size(), 0);
    d.rest.axes.assign(form.axes.size(), 0);
    for (size_t k = 0; k < form.axes.size(); ++k)
        if (form.axes[k] % by == 0)
            d.quotient.axes[k] = form.axes[k] / by;
        else
            d.rest.axes[k] = form.axes[k];
    for (const auto& [r, c] : form.registers)
        if (c % by == 0)
            d.quotient.registers.emplace_back(r, c / by);
        else
            d.rest.registers.emplace_back(r, c);
    return d;
}

/// The axis that `form` is, alone.
std::optional<size_t> only_axis(const Form& form) {
    if (form.constant != 0 || !form.registers.empty()) return std::nullopt;
    std::optional<size_t> only;
    for (size_t k = 0; k < form.axes.size(); ++k) {
        if (form.axes[k] == 0) continue;
        if (only || form.axes[k] != 1) return std::nullopt;
        only = k;
    }
    return only;
}

struct Split {
    size_t axis = 0;
    int64_t inner = 1;
};

/// The first axis to split, by its largest divisor: smaller ones then divide one of the halves.
std::optional<Split> next_split(const Plan& plan) {
    std::optional<Split> best;
    for (const Register& r : plan.registers) {
        if (!r.divides()) continue;
        const int64_t by = r.b.constant;
        const auto axis = only_axis(divided(r.a, by).rest);
        if (!axis || plan.extents[*axis] <= by || plan.extents[*axis] % by != 0) continue;
        if (!best || *axis < best->axis || (*axis == best->axis && by > best->inner)) best = Split{*axis, by};
    }
    return best;
}

/// Replaces register r by replacements[r], where there is one.
void replace_registers(Form& form, const std::vector<std::optional<Form>>& replacements) {
    const auto registers = std::exchange(form.registers, {});
    for (const auto& [r, c] : registers) {
        Form term;
        if (const std::optional<Form>& by = replacements[r]) {
            term = *by;
        } else {
            term.axes.assign(form.axes.size(), 0);
            term.registers = {{r, 1}};
        }
        add(form, scaled(std::move(term), c));
    }
}

/// Takes multiples of the divisor out of divisions, which makes those affine whose rest stays in one period:
///     (16*i0 + i1) // 16 -> i0 + i1 // 16 -> i0   for i1 in [0, 16)
void reduce_divisions(Plan& plan) {
    std::vector<std::optional<Form>> replacements(plan.registers.size());
    for (size_t id = 0; id < plan.registers.size(); ++id) {
        Register& r = plan.registers[id];
        if (r.kind == Register::Kind::Load) continue;
        replace_registers(r.a, replacements);
        replace_registers(r.b, replacements);
        if (!r.divides()) continue;
        const int64_t by = r.b.constant;
        Divided d = divided(r.a, by);
        const IntRange range = range_of(d.rest, plan.extents, plan.registers);
        std::optional<Form> value = in_one_period(r.kind, d.rest, range, by);
        if (value) {  // nothing reads the register, and it should not keep axes from merging
            r.a = Form{0, std::vector<int64_t>(plan.extents.size(), 0), {}};
            r.b = r.a;
        } else {
            r.range = register_range(r.kind, range, {by, by});
            r.a = std::move(d.rest);
            value = Form{0, std::vector<int64_t>(plan.extents.size(), 0), {{static_cast<uint32_t>(id), 1}}};
        }
        if (r.kind == Register::Kind::FloorDiv) add(*value, d.quotient);
        replacements[id] = std::move(value);
    }
    for_each_use(plan, [&](Form& f) { replace_registers(f, replacements); });
}

void split_axis(Plan& plan, const Split& split) {
    const size_t k = split.axis;
    for_each_form(plan, [&](Form& f) { f.axes.insert(f.axes.begin() + at(k), exact_mul(f.axes[k], split.inner)); });
    plan.extents[k] /= split.inner;
    plan.extents.insert(plan.extents.begin() + at(k + 1), split.inner);
    if (k < plan.spatial) ++plan.spatial;
    reduce_divisions(plan);
}

}  // namespace

bool split_axes(Plan& plan) {
    // The body of an empty reduction is never evaluated, and forms have no ranges.
    if (std::any_of(plan.extents.begin(), plan.extents.end(), [](int64_t e) { return e == 0; })) return false;
    bool any = false;
    while (const auto split = next_split(plan)) {
        split_axis(plan, *split);
        any = true;
    }
    return any;
}

}  // namespace tilewright::interp
