// Activations, written so that intermediate values do not overflow: exp is applied only to non-positive arguments,
// log1p only to arguments in [0, 1].

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "ops/families.h"
#include "ops/scalar_math.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

/// y = f(x), x a floating-point tensor.
template <class F>
void map_float(NodeContext& c, const F& f, std::string_view role) {
    c.require(is_float(c.dtype(0)),
              fmt::format("a floating-point input is expected, and its type is {}", to_string(c.dtype(0))));
    c.out(0, c.b.map(
                 {c.in(0)}, c.dtype(0), [&](ScalarBody& body, Ids x) -> ScalarId { return f(Sx(body, x[0])); }, role));
}

Sx sigmoid_of(Sx x) { return x.of(1) / ((-x).exp() + 1); }
Sx softplus_of(Sx x) { return x.max(0) + (-x.abs()).exp().log1p(); }
/// alpha * (exp(x) - 1) below zero, x above.
Sx elu_of(Sx x, double alpha) { return (x < 0).choose(x.expm1() * alpha, x); }

void relu(NodeContext& c) {
    c.out(0, c.b.map(
                 {c.in(0)}, c.dtype(0), [](ScalarBody& body, Ids x) -> ScalarId { return Sx(body, x[0]).max(0); },
                 "relu"));
}

void leaky_relu(NodeContext& c) {
    const double alpha = c.node.attr_float("alpha", 0.01f);
    map_float(
        c, [&](Sx x) { return (x < 0).choose(x * alpha, x); }, "leaky");
}

/// Before opset 7 slopes are per channel (dimension 1): [C] -> [C, 1, 1].
void prelu(NodeContext& c) {
    c.require(c.dtype(0) == c.dtype(1),
              fmt::format("the slopes have type {}, and the input {}", to_string(c.dtype(1)), to_string(c.dtype(0))));
    ValueId slope = c.in(1);
    if (c.node.opset < 7 && c.rank(1) == 1 && c.rank(0) > 2) {
        std::vector<int64_t> ones;
        for (size_t k = 1; k + 1 < c.rank(0); ++k) ones.push_back(static_cast<int64_t>(k));
        slope = c.b.unsqueeze(slope, ones);
    }
    c.out(0, c.b.map(
                 {c.in(0), slope}, c.dtype(0),
                 [](ScalarBody& body, Ids x) -> ScalarId {
                     const Sx a(body, x[0]), s(body, x[1]);
                     return (a < 0).choose(a * s, a);
                 },
                 "prelu"));
}

void elu(NodeContext& c) {
    const double alpha = c.node.attr_float("alpha", 1.0f);
    map_float(
        c, [&](Sx x) { return elu_of(x, alpha); }, "elu");
}

void selu(NodeContext& c) {
    const bool old = c.node.opset < 6;
    const double alpha = c.node.attr_float("alpha", old ? 1.6732f : 1.67326319217681884765625f);
    const double gamma = c.node.attr_float("gamma", old ? 1.0507f : 1.05070102214813232421875f);
    map_float(
        c, [&](Sx x) { return elu_of(x, alpha) * gamma; }, "selu");
}

void celu(NodeContext& c) {
    const double alpha = c.node.attr_float("alpha", 1.0f);
    map_float(
        c, [&](Sx x) { return (x < 0).choose((x / alpha).expm1() * alpha, x); }, "celu");
}

void gelu(NodeContext& c) {
    const std::string mode = c.node.attr_string("approximate", "none");
    c.require(mode == "none" || mode == "tanh",
              fmt::format("attribute 'approximate' should be none or tanh, and is {}", quoted_name(mode)));
    map_float(
        c,
        [&](Sx x) {
            if (mode == "none") return x * 0.5 * ((x / std::numbers::sqrt2).erf() + 1);
            const Sx inner = (x + x * x * x * 0.044715) * std::sqrt(2 / std::numbers::pi);
            return x * 0.5 * (inner.tanh() + 1);
        },
        "gelu");
}

void hard_sigmoid(NodeContext& c) {
    const double alpha = c.node.attr_float("alpha", 0.2f), beta = c.node.attr_float("beta", 0.5f);
    map_float(
        c, [&](Sx x) { return (x * alpha + beta).min(1).max(0); }, "hard_sigmoid");
}

void hard_swish(NodeContext& c) {
    map_float(
        c, [](Sx x) { return x * (x / 6 + 0.5).min(1).max(0); }, "hard_swish");
}

void mish(NodeContext& c) {
    map_float(
        c, [](Sx x) { return x * softplus_of(x).tanh(); }, "mish");
}

void sigmoid(NodeContext& c) { map_float(c, sigmoid_of, "sigmoid"); }
void softplus(NodeContext& c) { map_float(c, softplus_of, "softplus"); }

void softsign(NodeContext& c) {
    map_float(
        c, [](Sx x) { return x / (x.abs() + 1); }, "softsign");
}

void thresholded_relu(NodeContext& c) {
    const double alpha = c.node.attr_float("alpha", 1.0f);
    map_float(
        c, [&](Sx x) { return (x > alpha).choose(x, x.of(0)); }, "threshold");
}

/// Integers are computed in double, so that a fractional bias or threshold is not truncated before the result.
void shrink(NodeContext& c) {
    const double lambda = c.node.attr_float("lambd", 0.5f), bias = c.node.attr_float("bias", 0.0f);
    const DType t = compute_type(c.dtype(0));
    c.out(0, c.b.map(
                 {c.in(0)}, c.dtype(0),
                 [&](ScalarBody& body, Ids ids) -> ScalarId {
                     const Sx x = Sx(body, ids[0]).cast(is_float(t) ? t : DType::F64);
                     return (x < -lambda).choose(x + bias, (x > lambda).choose(x - bias, x.of(0))).cast(t);
                 },
                 "shrink"));
}

void swish(NodeContext& c) {
    const double alpha = c.node.attr_float("alpha", 1.0f);
    map_float(
        c, [&](Sx x) { return x * sigmoid_of(x * alpha); }, "swish");
}

/// swish(a) * b
void swiglu(NodeContext& c) {
    const double alpha = c.node.attr_float("alpha", 1.0f);
    c.require(is_float(c.dtype(0)) && c.dtype(0) == c.dtype(1), "two floating-point inputs of one type are expected");
    c.out(0, c.b.map(
                 {c.in(0), c.in(1)}, c.dtype(0),
                 [&](ScalarBody& body, Ids x) -> ScalarId {
                     const Sx a(body, x[0]);
                     return a * sigmoid_of(a * alpha) * Sx(body, x[1]);
                 },
                 "swiglu"));
}

}  // namespace

std::vector<OpLowering> activation_lowerings() {
    return {
        {"", "Celu", 12, celu},
        {"", "Elu", 1, elu},
        {"", "Gelu", 20, gelu},
        {"", "HardSigmoid", 1, hard_sigmoid},
        {"", "HardSwish", 14, hard_swish},
        {"", "LeakyRelu", 1, leaky_relu},
        {"", "Mish", 18, mish},
        {"", "PRelu", 1, prelu},
        {"", "Relu", 1, relu},
        {"", "Selu", 1, selu},
        {"", "Shrink", 9, shrink},
        {"", "Sigmoid", 1, sigmoid},
        {"", "Softplus", 1, softplus},
        {"", "Softsign", 1, softsign},
        {"", "SwiGLU", 28, swiglu},
        {"", "Swish", 24, swish},
        {"", "ThresholdedRelu", 1, thresholded_relu},
    };
}

}  // namespace tilewright
