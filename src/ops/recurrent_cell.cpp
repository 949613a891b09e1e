#include "ops/recurrent_cell.h"

#include "base/error.h"
#include "ops/named_activation.h"
#include "ops/scalar_math.h"
#include "ops/step_loop.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

// --- activation functions

/// The functions of all directions, in order. Those with parameters take them from activation_alpha and
/// activation_beta, in order, as long as there are any.
std::vector<NamedActivation> activations(const NodeContext& c, const std::vector<std::string>& defaults,
                                         size_t directions) {
    std::vector<std::string> names = c.node.attr_strings("activations", {});
    if (names.empty())
        for (size_t d = 0; d < directions; ++d) names.insert(names.end(), defaults.begin(), defaults.end());
    c.require(names.size() == defaults.size() * directions,
              fmt::format("attribute 'activations' has {} names, and {} are expected", names.size(),
                          defaults.size() * directions));
    const std::vector<float> alphas = c.node.attr_floats("activation_alpha", {}),
                             betas = c.node.attr_floats("activation_beta", {});
    size_t alpha = 0, beta = 0;
    std::vector<NamedActivation> out;
    for (const std::string& given : names) {
        const ActivationKind* kind = find_activation(given);
        c.require(kind != nullptr && kind->recurrent,
                  fmt::format("the activation function {} is unknown", quoted_name(given)));
        NamedActivation a{kind->name};
        if (kind->alpha) a.alpha = alpha < alphas.size() ? static_cast<double>(alphas[alpha++]) : *kind->alpha;
        if (kind->beta) a.beta = beta < betas.size() ? static_cast<double>(betas[beta++]) : *kind->beta;
        out.push_back(a);
    }
    return out;
}

// --- shared by the cells

/// The parameters of a step other than values.
struct Style {
    std::vector<NamedActivation> f;  ///< of this direction
    std::optional<double> clip;
    int64_t hidden = 0;

    Sx activate(size_t k, Sx x) const { return f[k](clip ? x.max(-*clip).min(*clip) : x); }
};

Style style(const NodeContext& c, const std::vector<std::string>& defaults, size_t direction, size_t directions,
            int64_t hidden) {
    Style s;
    const std::vector<NamedActivation> all = activations(c, defaults, directions);
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(direction * defaults.size());
    s.f.assign(first, first + static_cast<std::ptrdiff_t>(defaults.size()));
    if (c.node.has("clip")) s.clip = static_cast<double>(c.node.attr_float("clip", 0));
    s.hidden = hidden;
    return s;
}

ValueId columns(Builder& b, ValueId v, int64_t first, int64_t count) {
    return b.slice(v, static_cast<int64_t>(b.rank(v)) - 1, first, count);
}

/// R of a direction, [gates * hidden, hidden], transposed; columns of the gates [first, first + count).
ValueId recurrent_weights(NodeContext& c, size_t direction, int64_t hidden, int64_t first, int64_t count) {
    const ValueId r = take(c.b, c.in(2), 0, static_cast<int64_t>(direction));
    return c.b.transpose(c.b.slice(r, 0, first * hidden, count * hidden), {1, 0});
}

/// The input's and the recurrence's bias, [gates * hidden] each.
struct Biases {
    ValueId input, recurrent;
};
std::optional<Biases> biases(NodeContext& c, size_t direction, int64_t width) {
    if (!c.has(3)) return std::nullopt;
    const std::string misfit =
        fmt::format("the bias has shape {}, and [directions, {}] is expected", to_string(c.shape(3)), 2 * width);
    c.require(c.rank(3) == 2, misfit);
    c.b.require_equal(c.shape(3)[0], c.shape(2)[0], misfit);
    c.b.require_equal(c.shape(3)[1], 2 * width, misfit);
    const ValueId v = take(c.b, c.in(3), 0, static_cast<int64_t>(direction));
    return Biases{columns(c.b, v, 0, width), columns(c.b, v, width, width)};
}

// --- the cells

/// h' = f(x + h R)
RecurrentCell rnn_cell(NodeContext& c, size_t direction, size_t directions, int64_t hidden) {
    RecurrentCell cell;
    const Style s = style(c, {"Tanh"}, direction, directions, hidden);
    cell.weights = {recurrent_weights(c, direction, hidden, 0, 1)};
    if (const auto both = biases(c, direction, hidden))
        cell.input_bias = c.b.binary(ScalarOp::Add, both->input, both->recurrent);
    cell.step = [s](Builder& b, ValueId x, const std::vector<ValueId>& states, const std::vector<ValueId>& weights) {
        const ValueId product = b.matmul(states[0], weights[0]);
        return std::vector<ValueId>{b.map(
            {x, product}, b.dtype(x),
            [&](ScalarBody& body, Ids v) -> ScalarId { return s.activate(0, Sx(body, v[0]) + Sx(body, v[1])); },
            "hidden")};
    };
    return cell;
}

/// i, o, f = f(x + h R + p * c);  c' = f * c + i * g(x + h R);  h' = o * h(c')
RecurrentCell lstm_cell(NodeContext& c, size_t direction, size_t directions, int64_t hidden) {
    RecurrentCell cell;
    cell.states = 2;
    const Style s = style(c, {"Sigmoid", "Tanh", "Tanh"}, direction, directions, hidden);
    const bool coupled = c.node.attr_int("input_forget", 0) != 0;
    const bool quantised = quantises_products(c);
    if (quantised) {
        const QuantisedMatrix r = quantised_matrix(c, 2, 10, direction);
        cell.weights = {r.values, r.scale, *r.zero};
    } else {
        cell.weights = {recurrent_weights(c, direction, hidden, 0, 4)};
    }
    if (const auto both = biases(c, direction, 4 * hidden))
        cell.input_bias = c.b.binary(ScalarOp::Add, both->input, both->recurrent);
    const size_t own = cell.weights.size();  // the peepholes are behind them
    const bool peepholes = c.has(7);
    if (peepholes) {
        const std::string misfit = fmt::format("the peepholes have shape {}, and [directions, {}] is expected",
                                               to_string(c.shape(7)), 3 * hidden);
        c.require(c.rank(7) == 2, misfit);
        c.b.require_equal(c.shape(7)[0], c.shape(2)[0], misfit);
        c.b.require_equal(c.shape(7)[1], 3 * hidden, misfit);
        const ValueId p = take(c.b, c.in(7), 0, static_cast<int64_t>(direction));
        for (int64_t k = 0; k < 3; ++k) cell.weights.push_back(columns(c.b, p, k * hidden, hidden));  // i, o, f
    }
    cell.step = [s, coupled, peepholes, quantised, own](Builder& b, ValueId x, const std::vector<ValueId>& states,
                                                        const std::vector<ValueId>& weights) {
        const DType t = b.dtype(x);
        const ValueId product = quantised ? dynamic_product(b, states[0], {weights[0], weights[1], weights[2]})
                                          : b.matmul(states[0], weights[0]);
        const ValueId sum = b.binary(ScalarOp::Add, x, product);
        const auto gate = [&](int64_t k) { return columns(b, sum, k * s.hidden, s.hidden); };
        std::vector<ValueId> operands = {gate(0), gate(2), gate(3), states[1]};
        if (peepholes) operands.insert(operands.end(), {weights[own], weights[own + 2]});
        const ValueId now = b.map(
            operands, t,
            [&](ScalarBody& body, Ids v) -> ScalarId {
                const auto at = [&](size_t k) { return Sx(body, v[k]); };
                const Sx before = at(3);
                const Sx i = s.activate(0, peepholes ? at(0) + at(4) * before : at(0));
                const Sx f = coupled ? i.of(1) - i : s.activate(0, peepholes ? at(1) + at(5) * before : at(1));
                return f * before + i * s.activate(1, at(2));
            },
            "cell");
        operands = {gate(1), now};
        if (peepholes) operands.push_back(weights[own + 1]);
        const ValueId out = b.map(
            operands, t,
            [&](ScalarBody& body, Ids v) -> ScalarId {
                const auto at = [&](size_t k) { return Sx(body, v[k]); };
                return s.activate(0, peepholes ? at(0) + at(2) * at(1) : at(0)) * s.f[2](at(1));
            },
            "hidden");
        return std::vector<ValueId>{out, now};
    };
    return cell;
}

/// (1 - z) * candidate + z * h
Sx blended(Sx z, Sx candidate, Sx h) { return (z.of(1) - z) * candidate + z * h; }

/// z, r = f(x + h R);  candidate = g(x + r * (h R + b)), the bias inside;  h' = (1 - z) * candidate + z * h
RecurrentCell gru_reset_after(NodeContext& c, const Style& s, size_t direction) {
    RecurrentCell cell;
    const int64_t h = s.hidden;
    cell.weights = {recurrent_weights(c, direction, h, 0, 3)};
    const auto both = biases(c, direction, 3 * h);
    if (both) {
        const ValueId zr =
            c.b.binary(ScalarOp::Add, columns(c.b, both->input, 0, 2 * h), columns(c.b, both->recurrent, 0, 2 * h));
        const std::vector<ValueId> parts = {zr, columns(c.b, both->input, 2 * h, h)};
        cell.input_bias = c.b.concat(parts, 0);
        cell.weights.push_back(columns(c.b, both->recurrent, 2 * h, h));
    }
    cell.step = [s, biased = both.has_value()](Builder& b, ValueId x, const std::vector<ValueId>& states,
                                               const std::vector<ValueId>& weights) {
        const ValueId product = b.matmul(states[0], weights[0]);
        std::vector<ValueId> operands = {states[0]};
        for (int64_t k = 0; k < 3; ++k) operands.push_back(columns(b, x, k * s.hidden, s.hidden));
        for (int64_t k = 0; k < 3; ++k) operands.push_back(columns(b, product, k * s.hidden, s.hidden));
        if (biased) operands.push_back(weights[1]);
        return std::vector<ValueId>{b.map(
            operands, b.dtype(x),
            [&](ScalarBody& body, Ids v) -> ScalarId {
                const auto at = [&](size_t k) { return Sx(body, v[k]); };
                const Sx z = s.activate(0, at(1) + at(4)), r = s.activate(0, at(2) + at(5));
                const Sx inner = biased ? at(6) + at(7) : at(6);
                return blended(z, s.activate(1, at(3) + r * inner), at(0));
            },
            "hidden")};
    };
    return cell;
}

/// z, r = f(x + h R);  candidate = g(x + (r * h) R);  h' = (1 - z) * candidate + z * h
RecurrentCell gru_reset_before(NodeContext& c, const Style& s, size_t direction) {
    RecurrentCell cell;
    const int64_t h = s.hidden;
    cell.weights = {recurrent_weights(c, direction, h, 0, 2), recurrent_weights(c, direction, h, 2, 1)};
    if (const auto both = biases(c, direction, 3 * h))
        cell.input_bias = c.b.binary(ScalarOp::Add, both->input, both->recurrent);
    cell.step = [s](Builder& b, ValueId x, const std::vector<ValueId>& states, const std::vector<ValueId>& weights) {
        const DType t = b.dtype(x);
        const ValueId gates = b.matmul(states[0], weights[0]);
        const auto of = [&](ValueId v, int64_t k) { return columns(b, v, k * s.hidden, s.hidden); };
        const ValueId reset = b.map(
            {of(x, 1), of(gates, 1), states[0]}, t,
            [&](ScalarBody& body, Ids v) -> ScalarId {
                return s.activate(0, Sx(body, v[0]) + Sx(body, v[1])) * Sx(body, v[2]);
            },
            "reset");
        const ValueId product = b.matmul(reset, weights[1]);
        return std::vector<ValueId>{b.map(
            {of(x, 0), of(gates, 0), of(x, 2), product, states[0]}, t,
            [&](ScalarBody& body, Ids v) -> ScalarId {
                const auto at = [&](size_t k) { return Sx(body, v[k]); };
                return blended(s.activate(0, at(0) + at(1)), s.activate(1, at(2) + at(3)), at(4));
            },
            "hidden")};
    };
    return cell;
}

}  // namespace

bool quantises_products(const NodeContext& c) { return c.node.op == "DynamicQuantizeLSTM"; }

QuantisedMatrix quantised_matrix(NodeContext& c, size_t weights, size_t scale, size_t direction) {
    const Dims w = c.shape(weights);
    const auto of_direction = [&](size_t input) {
        const Dims s = c.shape(input);
        const std::string misfit =
            fmt::format("input {} has shape {}, and [directions] or [directions, {}] is expected", input, to_string(s),
                        w[2].text());
        c.require(s.size() == 1 || s.size() == 2, misfit);
        c.b.require_equal(s[0], w[0], misfit);
        if (s.size() == 2) c.b.require_equal(s[1], w[2], misfit);
        return take(c.b, c.in(input), 0, static_cast<int64_t>(direction));
    };
    c.require(c.dtype(scale + 1) == c.dtype(weights),
              fmt::format("input {} (a zero point) should be {}, as input {} is, and is {}", scale + 1,
                          to_string(c.dtype(weights)), weights, to_string(c.dtype(scale + 1))));
    return {take(c.b, c.in(weights), 0, static_cast<int64_t>(direction)), of_direction(scale), of_direction(scale + 1)};
}

size_t gate_count(const NodeContext& c) {
    return c.node.op == "LSTM" || quantises_products(c) ? 4 : c.node.op == "GRU" ? 3 : 1;
}

RecurrentCell recurrent_cell(NodeContext& c, size_t direction, size_t directions, int64_t hidden) {
    if (c.node.op == "RNN") return rnn_cell(c, direction, directions, hidden);
    if (gate_count(c) == 4) return lstm_cell(c, direction, directions, hidden);
    const Style s = style(c, {"Sigmoid", "Tanh"}, direction, directions, hidden);
    return c.node.attr_int("linear_before_reset", 0) != 0 ? gru_reset_after(c, s, direction)
                                                          : gru_reset_before(c, s, direction);
}

}  // namespace tilewright
