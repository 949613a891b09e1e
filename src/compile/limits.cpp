#include "compile/limits.h"

#include <algorithm>

#include "base/error.h"
#include "graph/graph.h"

namespace tilewright {

namespace {

constexpr int64_t kMostTrips = int64_t{1} << 40;

/// The value of the dimension, if the names that it mentions are bound.
std::optional<int64_t> number(Expr e, const Bindings& names) {
    if (e.is_constant()) return e.constant();
    for (const Var v : variables(e))
        if (names.count(v) == 0) return std::nullopt;
    return evaluate(e, names);
}

/// Bytes of a tensor; nothing if a dimension is unknown, UINT64_MAX on overflow.
std::optional<uint64_t> bytes_of(const Value& value, const Bindings& names) {
    uint64_t bytes = byte_size(value.dtype);
    bool overflow = false;
    for (const Expr d : value.shape) {
        const auto n = number(d, names);
        if (!n) return std::nullopt;
        if (*n <= 0) return 0;  // a negative one is reported where the shape is evaluated
        overflow = __builtin_mul_overflow(bytes, static_cast<uint64_t>(*n), &bytes) || overflow;
    }
    return overflow ? UINT64_MAX : bytes;
}

void check_loops(const Program& program, const Bindings& names) {
    for (const Primitive& p : program.primitives) {
        if (const auto* branch = std::get_if<If>(&p.kind)) {
            check_loops(*branch->then_branch, names);
            check_loops(*branch->else_branch, names);
        } else if (const auto* loop = std::get_if<Loop>(&p.kind)) {
            const auto trips = loop->trip_count ? number(*loop->trip_count, names) : std::nullopt;
            if (!loop->has_condition && trips && *trips >= kMostTrips)
                model_error("{} would run {} times, and only that number ends it", quoted_name(p.name), *trips);
            check_loops(*loop->body, names);
        }
    }
}

}  // namespace

void check_limits(const Program& program, const Bindings& names) {
    check_loops(program, names);
    uint64_t total = 0;
    const auto charge = [&](ValueId v, const char* kind) {
        const Value& value = program.values[v];
        const auto bytes = bytes_of(value, names);
        if (!bytes) return;
        require_memory(*bytes, fmt::format("{} {} of shape {}", kind, quoted_name(value.name), to_string(value.shape)));
        if (__builtin_add_overflow(total, *bytes, &total)) total = UINT64_MAX;
    };
    for (const auto& [v, tensor] : program.constants) charge(v, "constant");
    for (const ValueId v : program.inputs) charge(v, "input");
    for (const ValueId v : program.outputs) charge(v, "output");
    require_memory(total, "the model's inputs, outputs and weights together");
}

Bindings bind_inputs(const Program& program, const std::vector<Tensor>& inputs) {
    Bindings names;
    for (const size_t i : binding_order(program)) {
        if (i >= inputs.size()) continue;
        const Value& value = program.values[program.inputs[i]];
        bind_shape(names, value.shape, inputs[i].shape(), fmt::format("input {}", quoted_name(value.name)));
    }
    return names;
}

}  // namespace tilewright
