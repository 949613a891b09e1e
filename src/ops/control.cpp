// Loop and Scan: their bodies become separate programs, whose captured outer values are additional inputs.

#include <algorithm>
#include <set>

#include "base/error.h"
#include "ops/control.h"
#include "ops/families.h"
#include "ops/shape_math.h"

namespace tilewright {

namespace {

using Body = NodeContext::Body;
using control::body_attr;
using control::is_visible;
using control::output;
using control::visible_names;

// --- Loop and Scan

struct LoopPlan {
    std::optional<Expr> trip_count;
    std::optional<ValueId> condition;
    bool takes_condition = false;  ///< the ONNX body's first inputs are iteration number and condition (Loop)
    std::vector<ValueId> carried;
    std::vector<Loop::ScanInput> scan_inputs;
    std::vector<Loop::ScanOutput> scan_outputs;  ///< axes may still be negative
};

bool known_true(const Builder& b, ValueId v) {
    const Tensor* t = b.contents(v);
    return t != nullptr && t->count() == 1 && t->get_int(0) != 0;
}

/// A carried value's type inside the body. Dimensions that an iteration may change are dynamic.
struct Carried {
    DType dtype;
    Dims shape;
    std::vector<bool> free;
};

/// Makes the dimensions that the body changes dynamic; true if there was a new one.
bool widen(NodeContext& c, Carried& in, const Value& out, size_t k) {
    c.require(out.dtype == in.dtype, fmt::format("carried value {} starts as {}, and the body returns {}", k,
                                                 to_string(in.dtype), to_string(out.dtype)));
    if (out.shape.size() != in.shape.size())
        c.unsupported(fmt::format("carried value {} changes its rank from shape {} to {}", k, to_string(in.shape),
                                  to_string(out.shape)));
    bool changed = false;
    for (size_t d = 0; d < in.shape.size(); ++d) {
        if (in.free[d] || in.shape[d] == out.shape[d]) continue;
        in.shape[d] = c.b.fresh_symbol(fmt::format("carried{}_d{}", k, d));
        in.free[d] = changed = true;
    }
    return changed;
}

struct LoweredLoop {
    Body body;
    std::vector<Carried> carried;
    bool counted = false;  ///< only the trip count ends it; the body's program has no condition
};

/// Lowers the body repeatedly until its output shapes equal its input shapes.
LoweredLoop lower_iteration(NodeContext& c, const Graph& graph, const LoopPlan& plan) {
    LoweredLoop loop;
    loop.counted = !plan.takes_condition || !plan.condition || known_true(c.b, *plan.condition);
    for (const ValueId v : plan.carried)
        loop.carried.push_back({c.b.dtype(v), c.b.shape(v), std::vector<bool>(c.b.rank(v), false)});
    for (;;) {
        std::vector<NodeContext::BodyInput> inputs = {{DType::I64, {}, {}, plan.takes_condition}};
        if (plan.takes_condition) {
            inputs.push_back({DType::Bool, {}});
            if (loop.counted) inputs.back().value = Tensor::of<int64_t>(DType::Bool, {}, {1});
        }
        for (const Carried& v : loop.carried) inputs.push_back({v.dtype, v.shape});
        for (const Loop::ScanInput& s : plan.scan_inputs) {
            Dims slice = c.b.shape(s.value);
            slice.erase(slice.begin() + s.axis);
            inputs.push_back({c.b.dtype(s.value), std::move(slice)});
        }
        const bool drop = plan.takes_condition && loop.counted;
        loop.body = c.lower_body(graph, inputs, drop);
        if (drop && !(loop.body.known[0] && loop.body.known[0]->count() == 1 && loop.body.known[0]->get_int(0) != 0)) {
            loop.counted = false;  // the body computes the stop condition
            continue;
        }
        const size_t first = plan.takes_condition && !loop.counted ? 1 : 0;
        bool changed = false;
        for (size_t k = 0; k < loop.carried.size(); ++k)
            changed = widen(c, loop.carried[k], output(loop.body, first + k), k) || changed;
        if (!changed) return loop;
    }
}

/// Appends the loop; returns carried values, then scan outputs.
std::vector<ValueId> emit_loop(NodeContext& c, const Graph& graph, LoopPlan plan) {
    const size_t conditions = plan.takes_condition ? 1 : 0;
    c.require(graph.outputs.size() >= conditions + plan.carried.size(),
              fmt::format("the body returns {} outputs, fewer than its {} carried values need", graph.outputs.size(),
                          plan.carried.size()));
    plan.scan_outputs.resize(graph.outputs.size() - conditions - plan.carried.size());
    LoweredLoop lowered = lower_iteration(c, graph, plan);
    c.require(!lowered.counted || plan.trip_count, "the loop has neither a trip count nor a condition that ends it");

    const std::set<Var> names = visible_names(c.b.program());
    std::vector<std::pair<DType, Dims>> types;
    for (size_t k = 0; k < plan.carried.size(); ++k) {
        Carried& v = lowered.carried[k];
        for (size_t d = 0; d < v.shape.size(); ++d)
            if (v.free[d]) v.shape[d] = c.b.fresh_symbol(fmt::format("final{}_d{}", k, d));
        types.emplace_back(v.dtype, v.shape);
    }
    const Expr trips = lowered.counted ? *plan.trip_count : c.b.fresh_symbol("trips");
    const size_t first = (plan.takes_condition && !lowered.counted ? 1 : 0) + plan.carried.size();
    for (size_t k = 0; k < plan.scan_outputs.size(); ++k) {
        const Value& slice = output(lowered.body, first + k);
        Dims shape = slice.shape;
        for (size_t d = 0; d < shape.size(); ++d)
            if (!is_visible(shape[d], names)) shape[d] = c.b.fresh_symbol(fmt::format("scan{}_d{}", k, d));
        int64_t& at = plan.scan_outputs[k].axis;
        at = c.b.normalize_axis(at, shape.size() + 1);
        shape.insert(shape.begin() + at, trips);
        types.emplace_back(slice.dtype, std::move(shape));
    }
    Loop loop;
    loop.trip_count = plan.trip_count;
    loop.has_condition = plan.takes_condition && !lowered.counted;
    if (loop.has_condition) loop.condition = plan.condition;
    loop.carried = std::move(plan.carried);
    loop.scan_inputs = std::move(plan.scan_inputs);
    loop.scan_outputs = std::move(plan.scan_outputs);
    loop.captures = std::move(lowered.body.captures);
    loop.body = std::move(lowered.body.program);
    return c.b.emit_control(std::move(loop), std::move(types), "loop");
}

void loop_lowering(NodeContext& c) {
    LoopPlan plan;
    plan.takes_condition = true;
    if (c.has(0)) plan.trip_count = max(c.b.read_int(c.in(0)), 0);
    if (c.has(1)) {
        c.require(c.dtype(1) == DType::Bool,
                  fmt::format("the condition must be boolean, and is {}", to_string(c.dtype(1))));
        plan.condition = c.in(1);
    }
    for (size_t k = 2; k < c.input_count(); ++k) plan.carried.push_back(c.in(k));
    const std::vector<ValueId> out = emit_loop(c, body_attr(c, "body"), std::move(plan));
    c.require(c.node.outputs.size() <= out.size(),
              fmt::format("{} outputs are named, and the body returns {}", c.node.outputs.size(), out.size()));
    for (size_t k = 0; k < out.size(); ++k) c.out(k, out[k]);
}

/// A list of integers, one per scan input or output; all 0 if absent.
std::vector<int64_t> per_scan(NodeContext& c, const std::string& name, size_t n) {
    std::vector<int64_t> v = c.node.attr_ints(name, std::vector<int64_t>(n, 0));
    c.require(v.size() == n, fmt::format("attribute '{}' has {} numbers, and {} are expected", name, v.size(), n));
    return v;
}

size_t scan_input_count(NodeContext& c, size_t inputs) {
    const int64_t n = c.node.attr_int("num_scan_inputs", 0);
    c.require(n >= 1 && static_cast<size_t>(n) <= inputs,
              fmt::format("attribute 'num_scan_inputs' is {}, with {} inputs", n, inputs));
    return static_cast<size_t>(n);
}

void scan_lowering(NodeContext& c) {
    const Graph& graph = body_attr(c, "body");
    const size_t scans = scan_input_count(c, c.input_count()), states = c.input_count() - scans;
    const std::vector<int64_t> axes = per_scan(c, "scan_input_axes", scans),
                               directions = per_scan(c, "scan_input_directions", scans);
    LoopPlan plan;
    for (size_t k = 0; k < states; ++k) plan.carried.push_back(c.in(k));
    for (size_t k = 0; k < scans; ++k) {
        const ValueId v = c.in(states + k);
        const int64_t at = c.b.normalize_axis(axes[k], c.b.rank(v));
        plan.scan_inputs.push_back({v, at, directions[k] != 0});
        const Expr length = c.b.shape(v)[static_cast<size_t>(at)];
        if (plan.trip_count)
            c.b.require_equal(*plan.trip_count, length,
                              fmt::format("scan inputs have {} and {} slices", plan.trip_count->text(), length.text()),
                              "slices");
        if (!plan.trip_count || length.is_constant()) plan.trip_count = length;
    }
    c.require(graph.outputs.size() >= states, "the body returns fewer outputs than there are states");
    const size_t outputs = graph.outputs.size() - states;
    const std::vector<int64_t> out_axes = per_scan(c, "scan_output_axes", outputs),
                               out_directions = per_scan(c, "scan_output_directions", outputs);
    for (size_t k = 0; k < outputs; ++k) plan.scan_outputs.push_back({out_axes[k], out_directions[k] != 0});
    const std::vector<ValueId> out = emit_loop(c, graph, std::move(plan));
    for (size_t k = 0; k < out.size(); ++k) c.out(k, out[k]);
}

/// Opset 8: every state and scan input has a leading batch dimension, and each example is scanned separately.
void scan_8_lowering(NodeContext& c) {
    if (c.has(0)) c.unsupported("sequence_lens, examples of different lengths, are not supported before opset 9");
    const Graph& graph = body_attr(c, "body");
    c.require(c.input_count() >= 2, "a scan input is missing");
    const size_t given = c.input_count() - 1, scans = scan_input_count(c, given), states = given - scans;
    const std::vector<int64_t> directions = per_scan(c, "directions", scans);
    const Expr batch = c.shape(1).at(0);
    if (!batch.is_constant()) c.unsupported("the batch size must be known before the model runs");
    std::vector<std::vector<ValueId>> results(graph.outputs.size());
    for (int64_t example = 0; example < batch.constant(); ++example) {
        const auto one = [&](size_t k) {
            c.require(c.rank(k + 1) >= 1, "states and scan inputs need a batch dimension");
            return c.b.squeeze(c.b.slice(c.in(k + 1), 0, example, 1), {0});
        };
        LoopPlan plan;
        for (size_t k = 0; k < states; ++k) plan.carried.push_back(one(k));
        for (size_t k = 0; k < scans; ++k) {
            const ValueId v = one(states + k);
            c.require(c.b.rank(v) >= 1, "scan inputs need a sequence dimension");
            plan.scan_inputs.push_back({v, 0, directions[k] != 0});
            const Expr length = c.b.shape(v)[0];
            if (plan.trip_count)
                c.b.require_equal(
                    *plan.trip_count, length,
                    fmt::format("scan inputs have {} and {} slices", plan.trip_count->text(), length.text()), "slices");
            plan.trip_count = length;
        }
        const std::vector<ValueId> out = emit_loop(c, graph, std::move(plan));
        for (size_t k = 0; k < out.size(); ++k) results[k].push_back(c.b.unsqueeze(out[k], {0}));
    }
    for (size_t k = 0; k < results.size(); ++k) {
        if (results[k].empty()) c.unsupported("a batch of 0 examples");
        c.out(k, c.b.concat(results[k], 0));
    }
}

}  // namespace

std::vector<OpLowering> control_lowerings() {
    return {
        {"", "If", 1, control::if_lowering},
        {"", "Loop", 1, loop_lowering},
        {"", "Scan", 8, scan_8_lowering},
        {"", "Scan", 9, scan_lowering},
    };
}

}  // namespace tilewright
