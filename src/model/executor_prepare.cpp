#include <algorithm>
#include <map>

#include "model/executor_impl.h"

namespace tilewright {

bool Executor::Impl::fits(const Preparation& p) const {
    for (size_t i = 0; i < early_slots.size(); ++i)
        if (context.names->value(early_slots[i]) != p.early_values[i]) return false;
    for (size_t i = 0; i < p.placed.size(); ++i)
        if (slots[plan.program.outputs[i]].fixed() != p.placed[i]) return false;
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
        const Preparation* before = applied ? &preparations.front() : nullptr;
        applied = false;
        preparations.push_front(new_preparation(before));
        if (preparations.size() > kPreparations) preparations.pop_back();
        forget_sized();
        ++context.counters->preparations;
    }
    applied = false;
    apply(preparations.front());
    compute_sized(preparations.front());
    prepared = applied = true;
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
        const auto [it, fresh] = lives.try_emplace(v, BufferLife{0, step, step});
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

Executor::Impl::ArenaLayout& Executor::Impl::layout() {
    constexpr size_t kMost = 8;
    std::vector<bool> fixed;
    for (const ValueId v : plan.program.outputs) fixed.push_back(slots[v].fixed());
    for (const AppendStep& a : appends) fixed.push_back(slots[a.rows].fixed());
    for (const Sized& s : sized) fixed.push_back(slots[s.value].kept);
    const auto known = std::find_if(layouts.begin(), layouts.end(),
                                    [&](const ArenaLayout& l) { return l.ways == ways && l.fixed == fixed; });
    if (known != layouts.end()) {
        layouts.splice(layouts.begin(), layouts, known);
    } else {
        const std::map<ValueId, BufferLife> all = lives();
        layouts.push_front({ways, std::move(fixed), {all.begin(), all.end()}, {}});
        if (layouts.size() > kMost) layouts.pop_back();
    }
    return layouts.front();
}

namespace {

/// Room for sizes that grow from run to run: an eighth more.
int64_t with_reserve(int64_t bytes) { return bytes + bytes / 8; }

}  // namespace

void Executor::Impl::plan_arena(Preparation& p) {
    constexpr size_t kMost = 4;
    ArenaLayout& of = layout();
    std::vector<int64_t> needed;
    double sum = 0;
    for (const auto& [v, life] : of.lives) {
        needed.push_back(room_for(v) + kBufferAlignment);
        sum += static_cast<double>(needed.back());
    }
    const auto fits = [&](const ArenaLayout::Planned& planned) {
        double room = 0;
        for (size_t i = 0; i < needed.size(); ++i) {
            if (planned.room[i] < needed[i]) return false;
            room += static_cast<double>(planned.room[i]);
        }
        return room <= 1.25 * sum;
    };
    auto found = std::find_if(of.plans.rbegin(), of.plans.rend(), fits);
    if (found == of.plans.rend()) {
        ArenaLayout::Planned fresh;
        fresh.needed = needed;
        std::vector<BufferLife> buffers;
        for (size_t i = 0; i < needed.size(); ++i) {
            const bool grows = !of.plans.empty() && needed[i] > of.plans.back().needed[i];
            fresh.room.push_back(grows ? with_reserve(needed[i]) : needed[i]);
            buffers.push_back(of.lives[i].second);
            buffers.back().bytes = fresh.room.back();
        }
        MemoryPlan memory = plan_memory(buffers);
        ++context.counters->memory_plans;
        fresh.offsets = std::move(memory.offsets);
        fresh.bytes = memory.total;
        if (of.plans.size() == kMost) of.plans.erase(of.plans.begin());
        of.plans.push_back(std::move(fresh));
        found = of.plans.rbegin();
    }
    for (size_t i = 0; i < needed.size(); ++i) p.offsets.emplace_back(of.lives[i].first, found->offsets[i]);
    p.arena_bytes = found->bytes;
}

Executor::Impl::NameSet Executor::Impl::names_in(Expr e) const {
    NameSet out = 0;
    for (const Var v : variables(e)) {
        const auto at = std::find(early_slots.begin(), early_slots.end(), context.names->slot(v)) - early_slots.begin();
        out |= NameSet{1} << std::min<std::ptrdiff_t>(at, 63);
    }
    return out;
}

Executor::Impl::NameSet Executor::Impl::changed_since(const Preparation& p) const {
    NameSet out = 0;
    for (size_t i = 0; i < early_slots.size(); ++i)
        if (context.names->value(early_slots[i]) != p.early_values[i]) out |= NameSet{1} << std::min<size_t>(i, 63);
    return out;
}

void Executor::Impl::find_names() {
    const auto of_shape = [this](ValueId v) {
        NameSet names = 0;
        for (const Expr d : plan.program.values[v].shape) names |= names_in(d);
        return names;
    };
    for (const ValueId v : shaped) shaped_names.push_back(of_shape(v));
    for (const Requirement* r : early_requirements) requirement_names.push_back(names_in(r->a) | names_in(r->b));
    for (size_t s = 0; s < steps.size(); ++s) {
        NameSet& names = kernel_names.emplace_back(0);
        const auto* call = std::get_if<KernelCall>(&plan.steps[s].what);
        if (call == nullptr || steps[s].kernel.late) continue;
        for (const ValueId v : call->tensors) names |= of_shape(v);
        for (const auto& extents : call->products)
            for (const Expr& x : extents) names |= names_in(x);
        for (const Expr& e : steps[s].kernel.kernel->grid) names |= names_in(e);
        for (const Var v : steps[s].kernel.kernel->names) names |= names_in(Expr::var(v));
    }
}

Executor::Impl::Preparation Executor::Impl::new_preparation(const Preparation* before) {
    const NameSet changed = before != nullptr ? changed_since(*before) : ~NameSet{0};
    const auto stays = [&](NameSet names) { return before != nullptr && (names & changed) == 0; };
    for (size_t i = 0; i < early_requirements.size(); ++i)
        if (!stays(requirement_names[i])) check({early_requirements[i]});
    Preparation p;
    for (const size_t s : early_slots) p.early_values.push_back(context.names->value(s));
    for (const ValueId v : plan.program.outputs) p.placed.push_back(slots[v].fixed());
    for (size_t i = 0; i < shaped.size(); ++i) {
        if (!stays(shaped_names[i])) shape_value(shaped[i]);
        const Shape& shape = slots[shaped[i]].shape;
        p.numbers.insert(p.numbers.end(), shape.begin(), shape.end());
    }
    ways = chosen_ways();
    p.ways = ways;
    for (SlicedSteps& group : sliced) {
        group.kept_bytes.clear();
        for (const ValueId v : group.of->kept)
            group.kept_bytes.push_back((bytes_of(v) / group.of->slices + 63) / 64 * 64);
        p.kept_bytes.push_back(group.kept_bytes);
    }
    place_sized(p, before, changed);
    plan_arena(p);
    p.kernels.resize(steps.size());
    const bool same_ways = before != nullptr && before->ways == ways;
    for (size_t s = 0; s < steps.size(); ++s) {
        const auto* call = std::get_if<KernelCall>(&plan.steps[s].what);
        KernelState& state = steps[s].kernel;
        if (call == nullptr || state.late || !runs(s)) continue;
        if (same_ways && stays(kernel_names[s])) {
            p.kernels[s] = before->kernels[s];
        } else {
            size_kernel(*call, state);
            p.kernels[s] = {state.tasks, state.alone, state.alternates, product_flops(*call, *context.names)};
        }
        p.numbers.insert(p.numbers.end(), state.names.begin(), state.names.end());
        if (!p.keeps_sized || !of_sizes[s]) p.flops += p.kernels[s].flops;
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
    auto next = p.numbers.begin();
    const auto take = [&next](std::vector<int64_t>& to, size_t count) {
        to.assign(next, next + static_cast<std::ptrdiff_t>(count));
        next += static_cast<std::ptrdiff_t>(count);
    };
    for (const ValueId v : shaped) take(slots[v].shape, plan.program.values[v].shape.size());
    for (size_t g = 0; g < sliced.size(); ++g) sliced[g].kept_bytes = p.kept_bytes[g];
    reserve_arena(p.arena_bytes);
    for (const auto& [v, offset] : p.offsets) slots[v].data = arena.data() + offset;
    for (const Sized& s : sized) slots[s.value].kept = p.keeps_sized;
    for (size_t i = 0; i < p.sized.size(); ++i) slots[sized[i].value].data = aligned(p.sized[i]->storage);
    for (size_t s = 0; s < steps.size(); ++s) {
        const auto* call = std::get_if<KernelCall>(&plan.steps[s].what);
        KernelState& state = steps[s].kernel;
        if (call == nullptr || state.late || !runs(s)) continue;
        const Preparation::Kernel& k = p.kernels[s];
        take(state.names, state.names.size());
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
