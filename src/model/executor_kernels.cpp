#include <algorithm>

#include "base/clock.h"
#include "model/executor_impl.h"

namespace tilewright {

void Executor::Impl::find_slices() {
    sliced_as.assign(steps.size(), -1);
    for (const Slices& of : plan.slices) {
        SlicedSteps group{&of, {}, {}, {}, {}};
        bool known = true;
        for (size_t k = 0; k < of.count; ++k) {
            const KernelState& state = steps[of.first + k].kernel;
            known = known && !state.late && !state.library;
            const auto& tensors = std::get<KernelCall>(plan.steps[of.first + k].what).tensors;
            group.kept_place.emplace_back();
            for (const ValueId v : tensors) {
                const auto it = std::find(of.kept.begin(), of.kept.end(), v);
                group.kept_place.back().push_back(it == of.kept.end() ? -1 : static_cast<int>(it - of.kept.begin()));
            }
            for (int t = 0; t < workers; ++t) group.tensors.emplace_back(tensors.size());
        }
        if (!known) continue;
        group.spent_us.resize(group.tensors.size());
        for (size_t k = 0; k < of.count; ++k) sliced_as[of.first + k] = static_cast<int>(sliced.size());
        sliced.push_back(std::move(group));
    }
}

bool Executor::Impl::runs_later(size_t s) const {
    return sliced_as[s] >= 0 && s + 1 != sliced[static_cast<size_t>(sliced_as[s])].of->first +
                                             sliced[static_cast<size_t>(sliced_as[s])].of->count;
}

void Executor::Impl::run_slices(SlicedSteps& group) {
    const Slices& of = *group.of;
    const bool profiled = context.profile != nullptr;
    const double begun = profiled ? now_us() : 0;
    for (size_t k = 0; k < of.count; ++k)
        fetch_places(std::get<KernelCall>(plan.steps[of.first + k].what), steps[of.first + k].kernel);
    std::fill(group.spent_us.begin(), group.spent_us.end(), 0);
    const auto body = [&](int64_t begin, int64_t end, int worker) {
        std::byte* scratch = context.scratch + worker * context.scratch_stride;
        double before = profiled ? now_us() : 0;
        for (int64_t slice = begin; slice < end; ++slice)
            for (size_t k = 0; k < of.count; ++k) {
                const KernelState& state = steps[of.first + k].kernel;
                const size_t mine = k * static_cast<size_t>(workers) + static_cast<size_t>(worker);
                std::vector<void*>& tensors = group.tensors[mine];
                for (size_t i = 0; i < tensors.size(); ++i) {
                    tensors[i] = state.tensors[i];
                    if (const int kept = group.kept_place[k][i]; kept >= 0)
                        tensors[i] = slice_base(group, static_cast<size_t>(kept), slice, worker);
                }
                const int64_t tasks = state.tasks / of.slices;
                state.kernel->run(tensors.data(), state.names.data(), slice * tasks, (slice + 1) * tasks, scratch);
                if (!profiled) continue;
                const double now = now_us();
                group.spent_us[mine] += now - before;
                before = now;
            }
    };
    if (context.pool == nullptr)
        body(0, of.slices, 0);
    else
        parallel_for(*context.pool, of.slices, body);
    if (profiled) add_profile(group, begun);
}

void* Executor::Impl::slice_base(const SlicedSteps& group, size_t kept, int64_t slice, int worker) const {
    const auto mine = reinterpret_cast<uintptr_t>(slots[group.of->kept[kept]].data) +
                      static_cast<uintptr_t>(worker * group.kept_bytes[kept]);
    return reinterpret_cast<void*>(mine -
                                   static_cast<uintptr_t>(slice * (bytes_of(group.of->kept[kept]) / group.of->slices)));
}

void Executor::Impl::add_profile(const SlicedSteps& group, double start) {
    const auto n = static_cast<size_t>(workers);
    for (size_t k = 0; k < group.of->count; ++k) {
        const auto& call = std::get<KernelCall>(plan.steps[group.of->first + k].what);
        double spent = 0;
        for (size_t t = 0; t < n; ++t) spent += group.spent_us[k * n + t] / static_cast<double>(n);
        context.profile->push_back({call.name, start, spent, product_flops(call, *context.names),
                                    static_cast<int>(call.kernel), bytes_of(call)});
        start += spent;
    }
}

void Executor::Impl::place_kernel(const KernelCall& call, KernelState& state) const {
    for (size_t i = 0; i < call.tensors.size(); ++i) state.tensors[i] = slots[call.tensors[i]].data;
}

void Executor::Impl::size_kernel(const KernelCall& call, KernelState& state) const {
    for (size_t i = 0; i < state.names.size(); ++i)
        state.names[i] = context.names->value(context.names->slot(state.kernel->names[i]));
    state.tasks = 1;
    for (const Expr& e : state.kernel->grid) state.tasks *= context.names->evaluate(e);
    if (state.tasks <= 1) {
        state.alone = state.alternates = false;
        return;
    }
    const double bytes = bytes_of(call);
    state.alone = done_sooner_alone(call, bytes);
    // A loop whose every step reads the same data, about as large as a cache, misses it throughout: the least recently
    // used line is evicted first. In boustrophedon order the data read last is read first (1 MB of weights, as much
    // second-level cache: 11.0 us a step instead of 12.6). Tasks are dispatched one by one then, so they must be large.
    state.alternates = bytes >= 256 * 1024 && bytes >= 16 * 1024 * static_cast<double>(state.tasks);
}

bool Executor::Impl::done_sooner_alone(const KernelCall& call, double bytes) const {
    constexpr double kBytes = 64 * 1024, kFlops = 2e5;
    return bytes <= kBytes && product_flops(call, *context.names) <= kFlops;
}

double Executor::Impl::bytes_of(const KernelCall& call) const {
    double bytes = 0;
    for (const ValueId v : call.tensors) {
        double size = static_cast<double>(byte_size(plan.program.values[v].dtype));
        for (const int64_t d : slots[v].shape) size *= static_cast<double>(d);
        bytes += size;
    }
    return bytes;
}

void Executor::Impl::run_kernel(const KernelCall& call, KernelState& state) {
    if (state.late) {
        for (const ValueId v : call.tensors)
            if (slots[v].late && is_result(call, v)) allocate_late(v);
        size_kernel(call, state);
        place_kernel(call, state);
        context.flops += product_flops(call, *context.names);
    } else {
        fetch_places(call, state);
    }
    if (state.tasks <= 0) return;
    if (state.library) {
        state.library->run(state.tensors.data(), context.scratch);
        return;
    }
    const auto body = [&](int64_t begin, int64_t end, int worker) {
        std::byte* scratch = context.scratch + worker * context.scratch_stride;
        if (!backward || !state.alternates)
            return state.kernel->run(state.tensors.data(), state.names.data(), begin, end, scratch);
        for (int64_t task = end; task-- > begin;)
            state.kernel->run(state.tensors.data(), state.names.data(), task, task + 1, scratch);
    };
    if (state.tasks == 1 || state.alone || context.pool == nullptr)
        body(0, state.tasks, 0);
    else
        parallel_for(*context.pool, state.tasks, body);
}

void Executor::Impl::fetch_places(const KernelCall& call, KernelState& state) const {
    for (size_t i = 0; i < call.tensors.size(); ++i)
        if (const Slot& slot = slots[call.tensors[i]]; slot.input || slot.placed || slot.bound)
            state.tensors[i] = slots[call.tensors[i]].data;
}

bool Executor::Impl::is_result(const KernelCall& call, ValueId v) {
    const auto end = call.tensors.end();
    return std::find(end - static_cast<std::ptrdiff_t>(call.results), end, v) != end;
}

}  // namespace tilewright
