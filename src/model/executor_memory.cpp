#include <algorithm>

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

void Executor::Impl::reserve_arena(int64_t bytes) {
    if (bytes <= arena.capacity()) return;
    context.memory->resize(arena_charged, static_cast<uint64_t>(bytes), false, "what the model computes on the way");
    arena_charged = static_cast<uint64_t>(bytes);
    arena.reserve(bytes);
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
    if (slot.placed != (data != nullptr)) prepared = false;
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
        if (slot.late || slot.constant || slot.input || again || append_of(out[i]) != nullptr) continue;
        shape_value(out[i]);
        const int64_t bytes = bytes_of(out[i]);
        void* to = memory(i, {plan.program.values[out[i]].dtype, slot.shape, nullptr});
        given[i] = {true, to};
        place(i, to != nullptr && is_apart(i, to, bytes) ? to : nullptr);
    }
}

const Executor::Impl::AppendStep* Executor::Impl::append_of(ValueId output) const {
    const auto it =
        std::find_if(appends.begin(), appends.end(), [&](const AppendStep& a) { return a.output == output; });
    return it == appends.end() ? nullptr : &*it;
}

void Executor::Impl::set_rows(size_t i, int64_t rows) {
    const Value& value = plan.program.values[plan.program.inputs.at(i)];
    for (const InputBinding& b : input_bindings[i])
        if (b.dimension == 0) context.names->set(b.slot, rows / b.step);
    Shape shape{rows};
    for (size_t d = 1; d < value.shape.size(); ++d) shape.push_back(context.names->evaluate(value.shape[d]));
    set_input(i, nullptr, shape);
}

Shape Executor::Impl::appended_shape(size_t output) const {
    const Value& value = plan.program.values[plan.program.outputs.at(output)];
    Shape shape;
    for (const Expr d : value.shape) shape.push_back(context.names->evaluate(d));
    return shape;
}

void Executor::Impl::bind(size_t input, size_t output, void* data) {
    const AppendStep* a = append_of(plan.program.outputs.at(output));
    TW_CHECK(a != nullptr && a->input == plan.program.inputs.at(input), "output {} appends to no input {}", output,
             input);
    Slot &in = slots[a->input], &rows = slots[a->rows], &out = slots[a->output];
    const int64_t first = bytes_of(a->input);
    const bool bound = data != nullptr, rows_bound = bound && a->rows_fit && first % kBufferAlignment == 0;
    if (out.bound != bound || rows.bound != rows_bound) prepared = false;
    out.bound = bound;
    rows.bound = rows_bound;
    if (!bound) return;
    in.data = out.data = data;
    if (rows_bound) rows.data = static_cast<std::byte*>(data) + first;
}

bool Executor::Impl::appended_in_place(PrimitiveId id) {
    const auto a = std::find_if(appends.begin(), appends.end(), [&](const AppendStep& s) { return s.primitive == id; });
    if (a == appends.end() || !slots[a->output].bound) return false;
    if (!slots[a->rows].bound)
        context.copy(static_cast<std::byte*>(slots[a->output].data) + bytes_of(a->input), slots[a->rows].data,
                     static_cast<size_t>(bytes_of(a->rows)));
    return true;
}

}  // namespace tilewright
