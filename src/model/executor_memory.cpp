#include <algorithm>
#include <map>

#include "base/error.h"
#include "model/executor_impl.h"

namespace tilewright {

int64_t Executor::Impl::bytes_of(ValueId v) const {
    int64_t bytes = 0;
    if (__builtin_mul_overflow(element_count(slots[v].shape), byte_size(plan.program.values[v].dtype), &bytes) ||
        bytes > kMostBytes)
        throw RuntimeError(fmt::format("not enough memory: value '{}' has shape {}", plan.program.values[v].name,
                                       to_string(slots[v].shape)));
    return bytes;
}

void Executor::Impl::prepare() {
    if (same_names()) return;
    prepared = false;
    check(early_requirements);
    std::map<ValueId, BufferLife> lives;
    for (const ValueId v : plan.program.values.ids())
        if (!slots[v].late && !slots[v].constant && !slots[v].input) shape_value(v);
    const auto touch = [&](ValueId v, int64_t step) {
        if (slots[v].late || slots[v].fixed()) return;
        const auto [it, fresh] = lives.try_emplace(v, BufferLife{room_for(v) + 64, step, step});
        it->second.last_step = step;
    };
    std::vector<int64_t> runs(plan.steps.size());  // where
    for (size_t at = 0; at < order.size(); ++at)
        for (const size_t s : order[at]) runs[s] = static_cast<int64_t>(at);
    for (SlicedSteps& group : sliced) {
        group.kept_bytes.clear();
        for (const ValueId v : group.of->kept)
            group.kept_bytes.push_back((bytes_of(v) / group.of->slices + 63) / 64 * 64);
        for (size_t k = 0; k < group.of->count; ++k)
            runs[group.of->first + k] = runs[group.of->first + group.of->count - 1];
    }
    for (const std::vector<size_t>& now : order)
        for (const size_t s : now) {
            const int64_t step = runs[s];
            if (const auto* call = std::get_if<KernelCall>(&plan.steps[s].what)) {
                for (const ValueId v : call->tensors) touch(v, step);
            } else {
                const Primitive& p = plan.program.primitives[std::get<PrimitiveId>(plan.steps[s].what)];
                for (const ValueId v : p.inputs()) touch(v, step);
                for (const ValueId v : p.outputs) touch(v, step);
            }
        }
    for (const ValueId v : plan.program.outputs)
        if (auto it = lives.find(v); it != lives.end()) it->second.last_step = static_cast<int64_t>(order.size());
    std::vector<BufferLife> buffers;
    for (const auto& [v, life] : lives) buffers.push_back(life);
    const MemoryPlan memory = plan_memory(buffers);
    reserve_arena(memory.total);
    size_t i = 0;
    for (const auto& [v, life] : lives) {
        slots[v].arena_offset = memory.offsets[i++];
        slots[v].data = arena.data() + slots[v].arena_offset;
    }
    flops = 0;
    for (size_t s = 0; s < plan.steps.size(); ++s)
        if (const auto* call = std::get_if<KernelCall>(&plan.steps[s].what); call != nullptr && !steps[s].kernel.late) {
            prepare_kernel(*call, steps[s].kernel);
            flops += product_flops(*call, *context.names);
        }
    early_values.clear();
    for (const size_t s : early_slots) early_values.push_back(context.names->value(s));
    prepared = true;
}

void Executor::Impl::reserve_arena(int64_t bytes) {
    if (bytes <= arena.capacity()) return;
    context.memory->resize(arena_charged, static_cast<uint64_t>(bytes), false, "what the model computes on the way");
    arena_charged = static_cast<uint64_t>(bytes);
    arena.reserve(bytes);
}

int64_t Executor::Impl::room_for(ValueId v) const {
    for (const SlicedSteps& group : sliced)
        for (size_t k = 0; k < group.of->kept.size(); ++k)
            if (group.of->kept[k] == v) return workers * group.kept_bytes[k];
    return bytes_of(v);
}

void Executor::Impl::allocate_late(ValueId v) {
    shape_value(v);
    Slot& slot = slots[v];
    context.memory->grow(slot.own, static_cast<uint64_t>(bytes_of(v)) + 128, [&] {
        return fmt::format("value '{}' of shape {}", plan.program.values[v].name, to_string(slot.shape));
    });
    slot.data = slot.own.data() + (64 - reinterpret_cast<uintptr_t>(slot.own.data()) % 64) % 64;
}

bool Executor::Impl::can_place(size_t i) const {
    const ValueId v = plan.program.outputs.at(i);
    if (!sizes_stay() || slots[v].late || slots[v].constant || slots[v].input) return false;
    return std::any_of(plan.steps.begin(), plan.steps.end(), [&](const Step& s) {
        const auto* call = std::get_if<KernelCall>(&s.what);
        return call != nullptr && is_result(*call, v);
    });
}

size_t Executor::Impl::output_bytes(size_t i) const {
    const Value& value = plan.program.values[plan.program.outputs.at(i)];
    size_t bytes = byte_size(value.dtype);
    for (const Expr d : value.shape)
        if (__builtin_mul_overflow(bytes, static_cast<size_t>(context.names->evaluate(d)), &bytes) ||
            bytes > kMostBytes)
            throw RuntimeError(fmt::format("not enough memory: value '{}' is too large", value.name));
    return bytes;
}

void Executor::Impl::place(size_t i, void* data) {
    Slot& slot = slots[plan.program.outputs.at(i)];
    if (slot.placed && data == nullptr) prepared = false;
    slot.placed = data != nullptr;
    if (slot.placed) slot.data = data;
}

bool Executor::Impl::is_apart(size_t i, const void* data, int64_t bytes) const {
    const auto begin = reinterpret_cast<uintptr_t>(data), end = begin + static_cast<uintptr_t>(bytes);
    if (begin % kBufferAlignment != 0) return false;
    const auto overlaps = [&](ValueId v) {
        const auto other = reinterpret_cast<uintptr_t>(slots[v].data);
        return begin < other + static_cast<uintptr_t>(bytes_of(v)) && other < end;
    };
    const std::vector<ValueId>&in = plan.program.inputs, &out = plan.program.outputs;
    return std::none_of(in.begin(), in.end(), overlaps) &&
           std::none_of(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(i),
                        [&](ValueId v) { return slots[v].placed && overlaps(v); });
}

void Executor::Impl::place_outputs(const OutputMemory& memory, std::vector<GivenMemory>& given) {
    const std::vector<ValueId>& out = plan.program.outputs;
    if (!memory) {
        for (size_t i = 0; i < out.size(); ++i) place(i, nullptr);
        return;
    }
    if (!same_names()) check(early_requirements);
    for (size_t i = 0; i < out.size(); ++i) {
        const Slot& slot = slots[out[i]];
        const bool again = std::find(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(i), out[i]) !=
                           out.begin() + static_cast<std::ptrdiff_t>(i);
        if (slot.late || slot.constant || slot.input || again) continue;
        shape_value(out[i]);
        const int64_t bytes = bytes_of(out[i]);
        void* to = memory(i, {plan.program.values[out[i]].dtype, slot.shape, nullptr});
        given[i] = {true, to};
        place(i, to != nullptr && is_apart(i, to, bytes) ? to : nullptr);
    }
}

}  // namespace tilewright
