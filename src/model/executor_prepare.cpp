#include <algorithm>
#include <map>

#include "model/executor_impl.h"

namespace tilewright {

bool Executor::Impl::fits(const Preparation& p) const {
    for (size_t i = 0; i < early_slots.size(); ++i)
        if (context.names->value(early_slots[i]) != p.early_values[i]) return false;
    for (size_t i = 0; i < p.placed.size(); ++i)
        if (slots[plan.program.outputs[i]].placed != p.placed[i]) return false;
    return true;
}

void Executor::Impl::prepare() {
    if (same_names()) return;
    prepared = false;
    const auto known =
        std::find_if(preparations.begin(), preparations.end(), [this](const Preparation& p) { return fits(p); });
    if (known != preparations.end()) {
        preparations.splice(preparations.begin(), preparations, known);
        ++context.counters->recalled;
    } else {
        preparations.push_front(new_preparation());
        if (preparations.size() > kPreparations) preparations.pop_back();
        ++context.counters->preparations;
    }
    apply(preparations.front());
    prepared = true;
}

std::vector<int64_t> Executor::Impl::times() const {
    std::vector<int64_t> at(plan.steps.size());
    for (size_t t = 0; t < order.size(); ++t)
        for (const size_t s : order[t]) at[s] = static_cast<int64_t>(t);
    for (const SlicedSteps& group : sliced)
        for (size_t k = 0; k < group.of->count; ++k)
            at[group.of->first + k] = at[group.of->first + group.of->count - 1];
    return at;
}

std::map<ValueId, BufferLife> Executor::Impl::lives() const {
    std::map<ValueId, BufferLife> lives;
    const std::vector<int64_t> at = times();
    const auto touch = [&](ValueId v, int64_t step) {
        if (slots[v].late || slots[v].fixed()) return;
        const auto [it, fresh] = lives.try_emplace(v, BufferLife{room_for(v) + 64, step, step});
        it->second.last_step = step;
    };
    for (const std::vector<size_t>& now : order)
        for (const size_t s : now) {
            if (!runs(s)) continue;
            if (const auto* call = std::get_if<KernelCall>(&plan.steps[s].what)) {
                for (const ValueId v : call->tensors) touch(v, at[s]);
            } else {
                const Primitive& p = plan.program.primitives[std::get<PrimitiveId>(plan.steps[s].what)];
                for (const ValueId v : p.inputs()) touch(v, at[s]);
                for (const ValueId v : p.outputs) touch(v, at[s]);
            }
        }
    for (const ValueId v : plan.program.outputs)
        if (auto it = lives.find(v); it != lives.end()) it->second.last_step = static_cast<int64_t>(order.size());
    return lives;
}

Executor::Impl::Preparation Executor::Impl::new_preparation() {
    check(early_requirements);
    Preparation p;
    for (const size_t s : early_slots) p.early_values.push_back(context.names->value(s));
    for (const ValueId v : plan.program.outputs) p.placed.push_back(slots[v].placed);
    for (const ValueId v : shaped) {
        shape_value(v);
        p.shapes.push_back(slots[v].shape);
    }
    ways = chosen_ways();
    p.ways = ways;
    for (SlicedSteps& group : sliced) {
        group.kept_bytes.clear();
        for (const ValueId v : group.of->kept)
            group.kept_bytes.push_back((bytes_of(v) / group.of->slices + 63) / 64 * 64);
        p.kept_bytes.push_back(group.kept_bytes);
    }
    std::vector<BufferLife> buffers;
    for (const auto& [v, life] : lives()) {
        buffers.push_back(life);
        p.offsets.emplace_back(v, 0);
    }
    const MemoryPlan memory = plan_memory(buffers);
    ++context.counters->memory_plans;
    for (size_t i = 0; i < memory.offsets.size(); ++i) p.offsets[i].second = memory.offsets[i];
    p.arena_bytes = memory.total;
    p.kernels.resize(steps.size());
    for (size_t s = 0; s < steps.size(); ++s) {
        const auto* call = std::get_if<KernelCall>(&plan.steps[s].what);
        KernelState& state = steps[s].kernel;
        if (call == nullptr || state.late || !runs(s)) continue;
        size_kernel(*call, state);
        p.kernels[s] = {state.names, state.tasks, state.alone, state.alternates};
        p.flops += product_flops(*call, *context.names);
    }
    return p;
}

std::vector<uint32_t> Executor::Impl::chosen_ways() const {
    std::vector<uint32_t> out;
    for (const Region& region : plan.regions)
        out.push_back(region.dispatch.choose([this](Expr e) { return context.names->evaluate(e); }));
    context.counters->dispatches += out.size();
    return out;
}

void Executor::Impl::apply(const Preparation& p) {
    ways = p.ways;
    for (size_t i = 0; i < shaped.size(); ++i) slots[shaped[i]].shape = p.shapes[i];
    for (size_t g = 0; g < sliced.size(); ++g) sliced[g].kept_bytes = p.kept_bytes[g];
    reserve_arena(p.arena_bytes);
    for (const auto& [v, offset] : p.offsets) slots[v].data = arena.data() + offset;
    for (size_t s = 0; s < steps.size(); ++s) {
        const auto* call = std::get_if<KernelCall>(&plan.steps[s].what);
        KernelState& state = steps[s].kernel;
        if (call == nullptr || state.late || !runs(s)) continue;
        const Preparation::Kernel& k = p.kernels[s];
        state.names = k.names;
        state.tasks = k.tasks;
        state.alone = k.alone;
        state.alternates = k.alternates;
        place_kernel(*call, state);
    }
    flops = p.flops;
}

int64_t Executor::Impl::room_for(ValueId v) const {
    for (const SlicedSteps& group : sliced)
        for (size_t k = 0; k < group.of->kept.size(); ++k)
            if (group.of->kept[k] == v) return workers * group.kept_bytes[k];
    return bytes_of(v);
}

}  // namespace tilewright
