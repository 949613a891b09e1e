#include "ops/step_loop.h"

#include <algorithm>

namespace tilewright {

namespace {

Dims without(Dims shape, int64_t axis) {
    shape.erase(shape.begin() + axis);
    return shape;
}

std::vector<ValueId> single_step(Builder& b, const StepLoop& loop, const Step& step) {
    std::vector<ValueId> slices;
    for (const Loop::ScanInput& s : loop.scanned) slices.push_back(take(b, s.value, s.axis, 0));
    std::vector<ValueId> out = step(b, loop.carried, slices, loop.shared);
    for (size_t k = 0; k < loop.stacked.size(); ++k) {
        ValueId& v = out[loop.carried.size() + k];
        v = b.unsqueeze(v, {loop.stacked[k].axis});
    }
    return out;
}

}  // namespace

ValueId take(Builder& b, ValueId v, int64_t axis, int64_t k) { return b.squeeze(b.slice(v, axis, k, 1), {axis}); }

std::vector<ValueId> run_steps(NodeContext& c, StepLoop loop, const Step& step) {
    for (const Loop::ScanInput& s : loop.scanned) {
        const Expr length = c.b.shape(s.value)[static_cast<size_t>(s.axis)];
        c.b.require_equal(length, loop.length,
                          fmt::format("a sequence has {} steps where {} are taken", length.text(), loop.length.text()),
                          "steps");
    }
    if (loop.length.is_constant(1)) return single_step(c.b, loop, step);
    std::vector<ValueId> captures;
    std::vector<std::pair<DType, Dims>> types;
    const auto body = NodeContext::write_body(c.node.name + "/" + loop.name, [&](Builder& b) {
        b.set_source("", c.node.op, c.node.describe());
        b.input("iteration", DType::I64, {});
        const auto declare = [&](const std::vector<ValueId>& values, std::string_view name) {
            std::vector<ValueId> inside;
            for (const ValueId v : values)
                inside.push_back(b.input(fmt::format("{}{}", name, inside.size()), c.b.dtype(v), c.b.shape(v)));
            return inside;
        };
        const std::vector<ValueId> carried = declare(loop.carried, "carried");
        std::vector<ValueId> slices, shared;
        for (const Loop::ScanInput& s : loop.scanned)
            slices.push_back(b.input(fmt::format("slice{}", slices.size()), c.b.dtype(s.value),
                                     without(c.b.shape(s.value), s.axis)));
        for (const ValueId v : loop.shared) {
            if (const Tensor* known = c.b.contents(v)) {
                shared.push_back(b.constant(*known, "shared"));
                continue;
            }
            shared.push_back(b.input(fmt::format("shared{}", captures.size()), c.b.dtype(v), c.b.shape(v)));
            captures.push_back(v);
        }
        std::vector<ValueId> out = step(b, carried, slices, shared);
        const std::vector<ValueId>& inputs = b.program().inputs;
        for (size_t k = 0; k < out.size(); ++k) {
            types.emplace_back(b.dtype(out[k]), b.shape(out[k]));
            // A program's outputs are distinct and are not its inputs.
            const bool before = std::find(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(k), out[k]) !=
                                out.begin() + static_cast<std::ptrdiff_t>(k);
            const bool given = std::find(inputs.begin(), inputs.end(), out[k]) != inputs.end();
            if (before || given || b.contents(out[k]) != nullptr) out[k] = b.copy(out[k], "output");
        }
        b.set_outputs(std::move(out));
    });
    for (size_t k = 0; k < loop.stacked.size(); ++k) {
        Dims& shape = types[loop.carried.size() + k].second;
        shape.insert(shape.begin() + loop.stacked[k].axis, loop.length);
    }
    Loop primitive;
    primitive.trip_count = loop.length;
    primitive.carried = std::move(loop.carried);
    primitive.scan_inputs = std::move(loop.scanned);
    primitive.scan_outputs = std::move(loop.stacked);
    primitive.captures = std::move(captures);
    primitive.body = body;
    return c.b.emit_control(std::move(primitive), std::move(types), loop.name);
}

}  // namespace tilewright
