#include <algorithm>
#include <exception>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "model/executor_impl.h"
#include "model/step_order.h"

namespace tilewright {

struct Executor::Impl::Outputs : OpaqueOutputs {
    Impl& self;
    PrimitiveId id;
    Outputs(Impl& s, PrimitiveId p) : self(s), id(p) {}
    TensorView allocate(size_t k, std::span<const int64_t> shape) override {
        const Primitive& p = self.plan.program.primitives[id];
        TW_CHECK(k < p.outputs.size());
        self.place_output(id, p.outputs[k], shape);
        return self.view(p.outputs[k]);
    }
};

bool Executor::Impl::of_kernels_alone(size_t s) const {
    const auto* id = std::get_if<PrimitiveId>(&plan.steps[s].what);
    const auto* loop = id != nullptr ? std::get_if<Loop>(&plan.program.primitives[*id].kind) : nullptr;
    if (loop == nullptr || loop->has_condition || loop->condition || !loop->trip_count || bindings.count(*id) != 0)
        return false;
    const auto known = [&](ValueId v) { return !slots[v].late; };
    if (!is_early(*loop->trip_count)) return false;
    const Primitive& primitive = plan.program.primitives[*id];
    const std::vector<ValueId> in = primitive.inputs();
    const Impl& body = *steps[s].bodies[0]->impl_;
    return std::all_of(primitive.outputs.begin(), primitive.outputs.end(), known) &&
           std::all_of(in.begin(), in.end(), known) && body.sizes_stay() &&
           std::all_of(body.steps.begin(), body.steps.end(),
                       [](const StepState& k) { return k.kernel.kernel != nullptr && !k.kernel.late; });
}

void Executor::Impl::find_order() {
    const int threads = context.pool != nullptr ? context.pool->size() : 1;
    std::vector<bool> may_wait(plan.steps.size(), false);
    for (size_t s = 0; threads > 1 && s < plan.steps.size(); ++s) may_wait[s] = of_kernels_alone(s);
    order = step_order(plan, threads, may_wait);
}

void Executor::Impl::run_side_by_side(const std::vector<size_t>& loops) {
    parallel_for(*context.pool, static_cast<int64_t>(loops.size()), [&](int64_t begin, int64_t end, int worker) {
        for (int64_t k = begin; k < end; ++k) {
            StepState& state = steps[loops[static_cast<size_t>(k)]];
            const PrimitiveId id = std::get<PrimitiveId>(plan.steps[loops[static_cast<size_t>(k)]].what);
            ExecutionContext& own = *state.context;
            own.pool = nullptr;
            own.scratch = context.scratch + worker * context.scratch_stride;
            state.times.clear();
            own.profile = context.profile != nullptr ? &state.times : nullptr;
            state.error = nullptr;
            const double start = context.profile != nullptr ? now_us() : 0;
            try {
                run_loop(id, std::get<Loop>(plan.program.primitives[id].kind), state);
            } catch (...) {
                state.error = std::current_exception();
            }
            if (context.profile != nullptr)
                state.times.push_back({plan.program.primitives[id].name, start, now_us() - start, 0, -1});
        }
    });
    for (const size_t s : loops) {
        context.flops += steps[s].context->flops;
        if (context.profile != nullptr)
            context.profile->insert(context.profile->end(), steps[s].times.begin(), steps[s].times.end());
    }
    for (const size_t s : loops)
        if (steps[s].error) std::rethrow_exception(std::exchange(steps[s].error, nullptr));
}

void Executor::Impl::run_other(PrimitiveId id, StepState& state) {
    const Primitive& primitive = plan.program.primitives[id];
    if (const auto* opaque = std::get_if<Opaque>(&primitive.kind)) {
        if (appended_in_place(id)) return;
        state.views.clear();
        for (const ValueId v : opaque->inputs) state.views.push_back(v ? view(v) : TensorView{});
        Outputs outputs(*this, id);
        opaque->op->run(state.views, outputs);
    } else if (const auto* read = std::get_if<ReadScalar>(&primitive.kind)) {
        const TensorView t = view(read->value);
        if (read->position >= t.count())
            model_error("'{}' reads element {} of '{}', which has {}", primitive.name, read->position,
                        plan.program.values[read->value].name, t.count());
        const Tensor wrapped(t.dtype, Shape(t.shape.begin(), t.shape.end()), t.data, nullptr);
        context.names->set(context.names->slot(*scalar(read->name).as_var()), wrapped.get_int(read->position));
    } else if (const auto* branch = std::get_if<If>(&primitive.kind)) {
        run_if(id, *branch, state);
    } else {
        ExecutionContext& own = *state.context;
        own.pool = context.pool;
        own.scratch = context.scratch;
        own.profile = context.profile;
        run_loop(id, std::get<Loop>(primitive.kind), state);
        context.flops += own.flops;
    }
}

void Executor::Impl::run_if(PrimitiveId id, const If& branch, StepState& state) {
    const bool yes = *static_cast<const uint8_t*>(slots[branch.condition].data) != 0;
    Executor& body = *state.bodies[yes ? 0 : 1];
    for (size_t i = 0; i < branch.captures.size(); ++i)
        body.set_input(i, slots[branch.captures[i]].data, slots[branch.captures[i]].shape);
    body.run();
    const Primitive& primitive = plan.program.primitives[id];
    for (size_t k = 0; k < primitive.outputs.size(); ++k) {
        const TensorView out = body.output(k);
        void* to = place_output(id, primitive.outputs[k], out.shape);
        context.copy(to, out.data, static_cast<size_t>(out.count()) * byte_size(out.dtype));
    }
}

}  // namespace tilewright
