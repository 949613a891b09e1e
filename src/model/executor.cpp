#include "model/executor.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/cancelled.h"
#include "base/clock.h"
#include "base/error.h"
#include "model/executor_impl.h"

namespace tilewright {

Executor::Impl::Impl(const Plan& p, ExecutionContext& c, const std::vector<Var>& known)
    : plan(p),
      context(c),
      slots(p.program.values.size()),
      workers(c.pool != nullptr ? c.pool->size() : 1),
      early(known.begin(), known.end()) {
    bind_inputs();
    hold_constants();
    for (const Var v : early) early_slots.push_back(context.names->slot(v));
    find_late();
    find_shaped();
    for (const Region& r : plan.regions) {
        for (const Expr e : r.dispatch.keys) TW_CHECK(is_early(e), "region '{}' depends on late sizes", r.name);
        for (const auto& needs : r.dispatch.needs)
            for (const Expr e : needs) TW_CHECK(is_early(e), "region '{}' depends on late sizes", r.name);
    }
    std::vector<const Requirement*> requirements;
    for (const Requirement& r : plan.program.requirements)
        (is_early(r.a) && is_early(r.b) ? early_requirements : requirements).push_back(&r);
    make_steps(std::move(requirements));
    find_order();
    find_slices();
    find_appends();
    find_names();
    find_sized();
}

void Executor::Impl::find_shaped() {
    std::set<ValueId> used(plan.program.outputs.begin(), plan.program.outputs.end());
    for (const Step& step : plan.steps) {
        if (const auto* call = std::get_if<KernelCall>(&step.what)) {
            used.insert(call->tensors.begin(), call->tensors.end());
            continue;
        }
        const Primitive& p = plan.program.primitives[std::get<PrimitiveId>(step.what)];
        const std::vector<ValueId> inputs = p.inputs();
        used.insert(inputs.begin(), inputs.end());
        used.insert(p.outputs.begin(), p.outputs.end());
    }
    for (const ValueId v : used)
        if (v && !slots[v].late && !slots[v].constant && !slots[v].input) shaped.push_back(v);
}

void Executor::Impl::find_appends() {
    const auto is = [](const std::vector<ValueId>& all, ValueId v) {
        return std::find(all.begin(), all.end(), v) != all.end();
    };
    const std::vector<ValueId>&in = plan.program.inputs, &out = plan.program.outputs;
    for (const Step& step : plan.steps) {
        const auto* id = std::get_if<PrimitiveId>(&step.what);
        const auto* opaque = id != nullptr ? std::get_if<Opaque>(&plan.program.primitives[*id].kind) : nullptr;
        if (opaque == nullptr || !opaque->op->concatenates() || opaque->inputs.size() != 2) continue;
        AppendStep a{*id, opaque->inputs[0], opaque->inputs[1], plan.program.primitives[*id].outputs.at(0)};
        if (!is(in, a.input) || !is(out, a.output) || slots[a.input].late || slots[a.output].late) continue;
        a.rows_fit = !slots[a.rows].fixed() && !slots[a.rows].late && !is(out, a.rows) &&
                     std::any_of(plan.steps.begin(), plan.steps.end(), [&](const Step& s) {
                         const auto* call = std::get_if<KernelCall>(&s.what);
                         return call != nullptr && is_result(*call, a.rows);
                     });
        appends.push_back(a);
    }
}

void Executor::Impl::bind_inputs() {
    input_bindings.resize(plan.program.inputs.size());
    // Inputs that are appended to come behind those that bind the sizes of their rows.
    std::set<ValueId> appended;
    for (const Primitive& p : plan.program.primitives)
        if (const auto* opaque = std::get_if<Opaque>(&p.kind); opaque != nullptr && opaque->op->concatenates())
            appended.insert(opaque->inputs.at(0));
    input_order = binding_order(plan.program);
    const auto composed = [&](size_t i) {
        const std::vector<Expr>& shape = plan.program.values[plan.program.inputs[i]].shape;
        return std::any_of(shape.begin(), shape.end(), [](Expr d) { return !d.is_constant() && !bound_symbol(d); });
    };
    std::stable_sort(input_order.begin(), input_order.end(), [&](size_t i, size_t j) {
        const auto turn = [&](size_t k) {
            return composed(k) ? 2 : static_cast<int>(appended.count(plan.program.inputs[k]));
        };
        return turn(i) < turn(j);
    });
    for (const size_t i : input_order) {
        const Value& v = plan.program.values[plan.program.inputs[i]];
        slots[plan.program.inputs[i]].input = true;
        for (size_t d = 0; d < v.shape.size(); ++d)
            if (const auto var = bound_symbol(v.shape[d]); var && early.insert(*var).second)
                input_bindings[i].push_back({d, context.names->slot(*var), size_name(*var).step});
    }
}

void Executor::Impl::hold_constants() {
    for (const auto& [v, tensor] : plan.program.constants) {
        slots[v].constant = true;
        slots[v].data = const_cast<void*>(tensor.data());
        slots[v].shape = tensor.shape();
    }
}

void Executor::Impl::make_steps(std::vector<const Requirement*> requirements) {
    std::set<Var> so_far = early;
    for (const Step& step : plan.steps) {
        if (const auto* call = std::get_if<KernelCall>(&step.what)) {
            steps.push_back(kernel_step(*call));
            continue;
        }
        StepState& state = steps.emplace_back(other_step(step, so_far));
        std::erase_if(requirements, [&](const Requirement* r) {
            const bool now = are_known(r->a, so_far) && are_known(r->b, so_far);
            if (now) state.requirements.push_back(r);
            return now;
        });
    }
    TW_CHECK(requirements.empty(), "nothing binds the names of {} and {}", requirements[0]->a.text(),
             requirements[0]->b.text());
}

Executor::Impl::StepState Executor::Impl::kernel_step(const KernelCall& call) const {
    StepState state;
    KernelState& k = state.kernel;
    k.kernel = &(*context.kernels)[call.kernel];
    if (k.kernel->library && context.pool != nullptr) k.library = k.kernel->library->runs(context.pool->size());
    k.tensors.resize(call.tensors.size());
    k.names.resize(k.kernel->names.size());
    for (const Var v : k.kernel->names) k.late = k.late || early.count(v) == 0;
    for (const ValueId v : call.tensors) k.late = k.late || slots[v].late;
    return state;
}

Executor::Impl::StepState Executor::Impl::other_step(const Step& step, std::set<Var>& known) {
    StepState state;
    const PrimitiveId id = std::get<PrimitiveId>(step.what);
    const Primitive& primitive = plan.program.primitives[id];
    for (const ValueId v : primitive.outputs) {
        const Value& value = plan.program.values[v];
        for (size_t d = 0; d < value.shape.size(); ++d)
            if (const auto var = value.shape[d].as_var();
                var && var->kind == VarKind::Symbol && known.insert(*var).second)
                bindings[id].push_back({v, d, context.names->slot(*var)});
    }
    if (const auto* read = std::get_if<ReadScalar>(&primitive.kind)) known.insert(*scalar(read->name).as_var());
    if (std::get_if<Loop>(&primitive.kind) != nullptr) state.context = std::make_unique<ExecutionContext>(context);
    for (const auto& body : step.bodies)
        state.bodies.push_back(std::make_unique<Executor>(*body, state.context ? *state.context : context,
                                                          std::vector<Var>(known.begin(), known.end())));
    return state;
}

int64_t Executor::Impl::arena_bytes() const {
    int64_t bytes = arena.capacity();
    for (const auto& step : steps)
        for (const auto& body : step.bodies) bytes += body->arena_bytes();
    return bytes;
}

void Executor::Impl::run() {
    prepare();
    context.flops += flops;
    for (const std::vector<size_t>& now : order) {
        if (context.cancelled != nullptr && *context.cancelled && (*context.cancelled)())
            throw Cancelled("the run was cancelled");
        if (now.size() > 1) {
            run_side_by_side(now);
            continue;
        }
        const size_t s = now[0];
        if (!runs(s) || is_done(s)) continue;
        if (sliced_as[s] < 0)
            run_step(s);
        else if (!runs_later(s))
            run_slices(sliced[static_cast<size_t>(sliced_as[s])]);
    }
}

void Executor::Impl::run_step(size_t s) {
    const double start = context.profile != nullptr ? now_us() : 0;
    if (const auto* call = std::get_if<KernelCall>(&plan.steps[s].what)) {
        run_kernel(*call, steps[s].kernel);
        if (context.profile != nullptr) {
            const double end = now_us();
            context.profile->push_back({call->name, start, end - start, product_flops(*call, *context.names),
                                        static_cast<int>(call->kernel), bytes_of(*call)});
        }
    } else {
        const PrimitiveId id = std::get<PrimitiveId>(plan.steps[s].what);
        run_other(id, steps[s]);
        check(steps[s].requirements);
        if (context.profile != nullptr)
            context.profile->push_back({plan.program.primitives[id].name, start, now_us() - start, 0, -1});
    }
}

Executor::Executor(const Plan& plan, ExecutionContext& context, const std::vector<Var>& known)
    : impl_(std::make_unique<Impl>(plan, context, known)) {}
Executor::~Executor() = default;

const std::vector<size_t>& Executor::input_order() const { return impl_->input_order; }
void Executor::set_input(size_t i, void* data, std::span<const int64_t> shape) { impl_->set_input(i, data, shape); }
void Executor::place_outputs(const OutputMemory& memory, std::vector<GivenMemory>& given) {
    impl_->place_outputs(memory, given);
}
void Executor::set_rows(size_t i, int64_t rows) { impl_->set_rows(i, rows); }
Shape Executor::appended_shape(size_t output) const { return impl_->appended_shape(output); }
void Executor::bind(size_t input, size_t output, void* data) { impl_->bind(input, output, data); }
void Executor::run() { impl_->run(); }
TensorView Executor::output(size_t i) const { return impl_->output(i); }
int64_t Executor::arena_bytes() const { return impl_->arena_bytes(); }

}  // namespace tilewright
