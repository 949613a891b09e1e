#include <algorithm>
#include <set>

#include "base/error.h"
#include "model/executor_impl.h"

namespace tilewright {

Names::Names(const std::vector<Var>& vars) {
    for (const Var v : vars) slots_.try_emplace(v, slots_.size());
    values_.assign(slots_.size(), 0);
}

size_t Names::slot(Var v) const {
    const auto it = slots_.find(v);
    TW_CHECK(it != slots_.end(), "{} has no slot", Expr::var(v).text());
    return it->second;
}

std::optional<int64_t> Names::polynomial(Expr e) const {
    int64_t sum = e.constant();
    for (const Term& t : e.terms()) {
        int64_t product = t.coefficient;
        for (const Atom* a : t.atoms)
            if (a->kind != Atom::Kind::Var || __builtin_mul_overflow(product, values_[slot(a->var)], &product))
                return std::nullopt;
        if (__builtin_add_overflow(sum, product, &sum)) return std::nullopt;
    }
    return sum;
}

int64_t Names::evaluate(Expr e) const {
    if (e.is_constant()) return e.constant();
    if (const auto value = polynomial(e)) return *value;
    const std::function<std::optional<int64_t>(Var)> look = [this](Var v) -> std::optional<int64_t> {
        return values_[slot(v)];
    };
    Env env;
    env.names = &look;
    return tilewright::evaluate(e, env);
}

namespace {

void collect(std::set<Var>& out, Expr e) {
    for (const Var v : variables(e))
        if (v.kind == VarKind::Symbol || v.kind == VarKind::Scalar) out.insert(v);
}

void collect(std::set<Var>& out, const Plan& plan) {
    for (const Value& v : plan.program.values)
        for (const Expr& d : v.shape) collect(out, d);
    for (const Primitive& p : plan.program.primitives) {
        if (const auto* read = std::get_if<ReadScalar>(&p.kind)) {
            collect(out, scalar(read->name));
        } else if (const auto* loop = std::get_if<Loop>(&p.kind)) {
            if (loop->trip_count) collect(out, *loop->trip_count);
        }
    }
    for (const Requirement& r : plan.program.requirements) {
        collect(out, r.a);
        collect(out, r.b);
    }
    for (const Region& r : plan.regions) {
        for (const Expr e : r.dispatch.keys) collect(out, e);
        for (const auto& needs : r.dispatch.needs)
            for (const Expr e : needs) collect(out, e);
    }
    for (const Step& s : plan.steps) {
        if (const auto* call = std::get_if<KernelCall>(&s.what))
            for (const auto& extents : call->products)
                for (const Expr& x : extents) collect(out, x);
        for (const auto& body : s.bodies) collect(out, *body);
    }
}

}  // namespace

double product_flops(const KernelCall& call, const Names& names) {
    double flops = 0;
    for (const std::vector<Expr>& extents : call.products) {
        double points = 2;
        for (const Expr& x : extents) points *= static_cast<double>(names.evaluate(x));
        flops += points;
    }
    return flops;
}

std::vector<Var> variables_of(const Plan& plan, const std::vector<cpu::CompiledKernel>& kernels) {
    std::set<Var> all;
    collect(all, plan);
    for (const cpu::CompiledKernel& k : kernels) all.insert(k.names.begin(), k.names.end());
    return {all.begin(), all.end()};
}

void Executor::Impl::set_input(size_t i, void* data, std::span<const int64_t> shape) {
    const ValueId v = plan.program.inputs.at(i);
    const Value& value = plan.program.values[v];
    if (shape.size() != value.shape.size())
        model_error("input '{}' has rank {}, expected {} {}", value.name, shape.size(), value.shape.size(),
                    to_string(std::span<const Expr>(value.shape)));
    for (const auto& [dim, slot, step] : input_bindings[i]) {
        if (shape[dim] % step != 0)
            model_error("input '{}' has {} elements in dimension {}, which the model is compiled for in steps of {}",
                        value.name, shape[dim], dim, step);
        context.names->set(slot, shape[dim] / step);
    }
    for (size_t d = 0; d < shape.size(); ++d) {
        const int64_t expected = context.names->evaluate(value.shape[d]);
        if (expected != shape[d])
            model_error("input '{}' has {} elements in dimension {}, expected {}{}", value.name, shape[d], d, expected,
                        value.shape[d].is_constant() ? "" : " (" + value.shape[d].text() + ")");
    }
    slots[v].data = data;
    slots[v].shape.assign(shape.begin(), shape.end());
}

void Executor::Impl::find_late() {
    for (const ValueId v : plan.program.values.ids())
        for (const Expr& d : plan.program.values[v].shape)
            for (const Var var : variables(d))
                if (early.count(var) == 0) slots[v].late = true;
}

bool Executor::Impl::same_names() const { return prepared && fits(preparations.front()); }

void Executor::Impl::shape_value(ValueId v) {
    const Value& value = plan.program.values[v];
    Shape& shape = slots[v].shape;
    shape.resize(value.shape.size());
    for (size_t d = 0; d < shape.size(); ++d) {
        shape[d] = context.names->evaluate(value.shape[d]);
        if (shape[d] < 0)
            model_error("value '{}': dimension {} ({}) is {} at these input shapes", value.name, d,
                        value.shape[d].text(), shape[d]);
    }
}

void* Executor::Impl::place_output(PrimitiveId id, ValueId v, std::span<const int64_t> shape) {
    const Value& value = plan.program.values[v];
    const auto describe = [&] { return plan.program.primitives[id].name; };
    if (shape.size() != value.shape.size())
        model_error("'{}' gave '{}' rank {}, expected {}", describe(), value.name, shape.size(), value.shape.size());
    if (auto it = bindings.find(id); it != bindings.end())
        for (const Binding& b : it->second)
            if (b.value == v) context.names->set(b.slot, shape[b.dim]);
    for (size_t d = 0; d < shape.size(); ++d)
        if (const int64_t expected = context.names->evaluate(value.shape[d]); expected != shape[d])
            model_error("'{}' gave '{}' {} elements in dimension {}, expected {} ({})", describe(), value.name,
                        shape[d], d, expected, value.shape[d].text());
    if (slots[v].late) allocate_late(v);
    return slots[v].data;
}

bool Executor::Impl::are_known(Expr e, const std::set<Var>& known) {
    const std::vector<Var> names = variables(e);
    return std::all_of(names.begin(), names.end(), [&](Var v) { return known.count(v) != 0; });
}

void Executor::Impl::check(const std::vector<const Requirement*>& requirements) const {
    for (const Requirement* r : requirements)
        tilewright::check(*r, plan.program, [this](Expr e) { return context.names->evaluate(e); });
}

bool Executor::Impl::sizes_stay() const {
    return std::all_of(input_bindings.begin(), input_bindings.end(), [](const auto& b) { return b.empty(); });
}

}  // namespace tilewright
