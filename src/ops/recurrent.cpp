// LSTM, GRU, RNN: the input products of all time steps at once, then a loop with one step per iteration. A
// bidirectional node becomes two loops.

#include <algorithm>

#include "base/error.h"
#include "ops/checked_values.h"
#include "ops/families.h"
#include "ops/recurrent_cell.h"
#include "ops/scalar_math.h"
#include "ops/step_loop.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

/// The node's sizes and options.
struct Sequence {
    Expr length, batch;
    int64_t hidden = 0;
    size_t directions = 1;
    bool batch_first = false;     ///< layout = 1
    bool reversed = false;        ///< for the first direction
    std::optional<ValueId> mask;  ///< Bool [length, batch]: the step is within the example's length
};

Sequence sequence_of(NodeContext& c) {
    Sequence s;
    for (size_t k = 0; k < 3; ++k)
        c.require(c.rank(k) == 3,
                  fmt::format("input {} should have rank 3, and has shape {}", k, to_string(c.shape(k))));
    s.batch_first = c.node.attr_int("layout", 0) != 0;
    s.length = c.shape(0)[s.batch_first ? 1 : 0];
    s.batch = c.shape(0)[s.batch_first ? 0 : 1];
    const std::string direction = c.node.attr_string("direction", "forward");
    c.require(direction == "forward" || direction == "reverse" || direction == "bidirectional",
              fmt::format("attribute 'direction' has the unknown value {}", quoted_name(direction)));
    s.directions = direction == "bidirectional" ? 2 : 1;
    s.reversed = direction == "reverse";
    const Dims w = c.shape(1), r = c.shape(2);
    const bool transposed = quantises_products(c);  // [directions, inputs, gates * hidden]
    const Expr hidden = r[transposed ? 1 : 2];
    if (!hidden.is_constant()) c.unsupported("the hidden size must be known before the model runs");
    s.hidden = hidden.constant();
    c.require(c.node.attr_int("hidden_size", s.hidden) == s.hidden,
              fmt::format("attribute 'hidden_size' should be {}, as R has shape {}, and is {}", s.hidden, to_string(r),
                          c.node.attr_int("hidden_size", s.hidden)));
    const auto width = static_cast<int64_t>(gate_count(c)) * s.hidden;
    Dims expected_w = {static_cast<int64_t>(s.directions), width, c.shape(0)[2]},
         expected_r = {static_cast<int64_t>(s.directions), width, s.hidden};
    if (transposed)
        for (Dims* d : {&expected_w, &expected_r}) std::swap((*d)[1], (*d)[2]);
    for (size_t k = 0; k < 3; ++k) {
        c.b.require_equal(w[k], expected_w[k],
                          fmt::format("W has shape {}, and {} is expected", to_string(w), to_string(expected_w)));
        c.b.require_equal(r[k], expected_r[k],
                          fmt::format("R has shape {}, which does not fit W of shape {}", to_string(r), to_string(w)));
    }
    return s;
}

/// mask[t, b] = t < lengths[b], unless every example is known to have all steps.
std::optional<ValueId> length_mask(NodeContext& c, const Sequence& s) {
    if (!c.has(4)) return std::nullopt;
    if (const auto known = c.b.int_contents(c.in(4)))
        if (std::all_of(known->begin(), known->end(), [&](Expr n) { return n == s.length; })) return std::nullopt;
    const std::string misfit =
        fmt::format("'sequence_lens' has shape {}, and one number per example is expected", to_string(c.shape(4)));
    c.require(c.rank(4) == 1, misfit);
    c.b.require_equal(c.shape(4)[0], s.batch, misfit);
    TensorExpr e;
    e.extents = {s.length, s.batch};
    e.spatial = 2;
    const ValueId lengths = checked_values(c, 4, 0, s.length, "length", s.length * s.hidden);
    e.accesses = {{lengths, {axis(1)}, {}, 0}};
    const Sx length = Sx(e.body, e.body.access(0, c.dtype(4))).cast(DType::I64);
    e.body.set_root(Sx(e.body, e.body.index(axis(0))).apply(ScalarOp::Lt, length));
    return c.b.emit(std::move(e), DType::Bool, "mask");
}

/// x W^T + bias for all steps, [length, batch, gates * hidden].
ValueId projected_input(NodeContext& c, const Sequence& s, size_t direction, const RecurrentCell& cell) {
    const auto products = [&] {
        if (quantises_products(c)) return dynamic_product(c.b, c.in(0), quantised_matrix(c, 1, 8, direction));
        const ValueId w = take(c.b, c.in(1), 0, static_cast<int64_t>(direction));
        return c.b.contract(s.batch_first ? "bti,gi->tbg" : "tbi,gi->tbg", c.in(0), w, c.dtype(0), "input_products");
    };
    const ValueId x = products();
    return cell.input_bias ? c.b.binary(ScalarOp::Add, x, *cell.input_bias) : x;
}

/// Initial states, [batch, hidden]: inputs 5 and (LSTM) 6, or zeros.
std::vector<ValueId> initial_states(NodeContext& c, const Sequence& s, size_t direction, size_t count) {
    std::vector<ValueId> out;
    const Dims expected = s.batch_first ? Dims{s.batch, static_cast<int64_t>(s.directions), s.hidden}
                                        : Dims{static_cast<int64_t>(s.directions), s.batch, s.hidden};
    for (size_t k = 0; k < count; ++k) {
        if (!c.has(5 + k)) continue;
        const std::string misfit = fmt::format("input {} has shape {}, and {} is expected", 5 + k,
                                               to_string(c.shape(5 + k)), to_string(expected));
        c.require(c.rank(5 + k) == 3, misfit);
        for (size_t d = 0; d < 3; ++d) c.b.require_equal(c.shape(5 + k)[d], expected[d], misfit);
    }
    for (size_t k = 0; k < count; ++k)
        out.push_back(c.has(5 + k) ? take(c.b, c.in(5 + k), s.batch_first ? 1 : 0, static_cast<int64_t>(direction))
                                   : c.b.full({s.batch, s.hidden}, c.dtype(0), 0));
    return out;
}

/// One step, with `mask` [batch] for examples that have ended: they keep their states and output zeros. Returns the new
/// states, then the output.
std::vector<ValueId> masked_step(Builder& b, const RecurrentCell& cell, ValueId x, std::optional<ValueId> mask,
                                 const std::vector<ValueId>& states, const std::vector<ValueId>& weights) {
    std::vector<ValueId> after = cell.step(b, x, states, weights);
    ValueId y = after[0];
    if (mask) {
        const ValueId alive = b.unsqueeze(*mask, {1});
        for (size_t k = 0; k < after.size(); ++k) after[k] = b.select(alive, after[k], states[k]);
        y = b.map(
            {alive, y}, b.dtype(y),
            [](ScalarBody& body, Ids v) -> ScalarId {
                const Sx out(body, v[1]);
                return Sx(body, v[0]).choose(out, out.of(0));
            },
            "output");
    }
    after.push_back(y);
    return after;
}

struct DirectionResult {
    ValueId output;               ///< [length, batch, hidden]
    std::vector<ValueId> states;  ///< after the last step
};

DirectionResult run_direction(NodeContext& c, const Sequence& s, size_t direction) {
    const RecurrentCell cell = recurrent_cell(c, direction, s.directions, s.hidden);
    const ValueId x = projected_input(c, s, direction, cell);
    const bool reverse = s.reversed || direction == 1;
    StepLoop loop;
    loop.name = direction == 0 ? "steps" : "backward_steps";
    loop.length = s.length;
    loop.carried = initial_states(c, s, direction, cell.states);
    loop.scanned = {{x, 0, reverse}};
    if (s.mask) loop.scanned.push_back({*s.mask, 0, reverse});
    loop.shared = cell.weights;
    loop.stacked = {{0, reverse}};
    const auto step = [&](Builder& b, const std::vector<ValueId>& states, const std::vector<ValueId>& slices,
                          const std::vector<ValueId>& weights) {
        const auto mask = slices.size() > 1 ? std::optional(slices[1]) : std::nullopt;
        return masked_step(b, cell, slices[0], mask, states, weights);
    };
    std::vector<ValueId> out = run_steps(c, std::move(loop), step);
    const ValueId y = out.back();
    out.pop_back();
    return {y, std::move(out)};
}

void recurrent(NodeContext& c) {
    Sequence s = sequence_of(c);
    s.mask = length_mask(c, s);
    std::vector<DirectionResult> results;
    for (size_t d = 0; d < s.directions; ++d) results.push_back(run_direction(c, s, d));
    if (c.uses_output(0)) {  // [length, directions, batch, hidden], or [batch, length, directions, hidden]
        std::vector<ValueId> parts;
        for (const DirectionResult& r : results) parts.push_back(c.b.unsqueeze(r.output, {1}));
        const ValueId y = c.b.concat(parts, 1);
        c.out(0, s.batch_first ? c.b.transpose(y, {2, 0, 1, 3}) : y);
    }
    for (size_t k = 0; k < results[0].states.size(); ++k) {
        if (!c.uses_output(1 + k)) continue;
        std::vector<ValueId> parts;
        for (const DirectionResult& r : results) parts.push_back(c.b.unsqueeze(r.states[k], {s.batch_first ? 1 : 0}));
        c.out(1 + k, c.b.concat(parts, s.batch_first ? 1 : 0));
    }
}

/// Where an example ends before others, ONNX Runtime quantises the states of fewer examples.
void dynamic_quantize_lstm(NodeContext& c) {
    for (const size_t input : {size_t{0}, size_t{8}, size_t{10}})
        c.require(c.dtype(input) == DType::F32,
                  fmt::format("input {} should be f32, and is {}", input, to_string(c.dtype(input))));
    if (length_mask(c, sequence_of(c)))
        c.unsupported("sequence_lens (input 4) is implemented where it is known to be the length of X");
    recurrent(c);
}

}  // namespace

std::vector<OpLowering> recurrent_lowerings() {
    return {
        {"", "GRU", 1, recurrent},
        {"", "LSTM", 1, recurrent},
        {"", "RNN", 1, recurrent},
        {"com.microsoft", "DynamicQuantizeLSTM", 1, dynamic_quantize_lstm},
    };
}

}  // namespace tilewright
