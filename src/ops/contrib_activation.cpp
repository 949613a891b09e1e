// Activations of com.microsoft: Gelu and its variants, BiasSoftmax, dropouts in inference.

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "ops/families.h"
#include "ops/scalar_math.h"
#include "ops/softmax.h"
#include "ops/window.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

Sx gelu_of(Sx x) { return x * 0.5 * ((x / std::numbers::sqrt2).erf() + 1); }
Sx fast_gelu_of(Sx x) {
    const Sx inner = (x + x * x * x * 0.044715) * std::sqrt(2 / std::numbers::pi);
    return x * 0.5 * (inner.tanh() + 1);
}

/// f(x + bias); the bias (input 1), a vector along the last dimension, may be missing.
void biased(NodeContext& c, Sx (*f)(Sx), std::string_view role) {
    std::vector<ValueId> parts = {c.in(0)};
    if (c.has(1)) {
        const std::string misfit = fmt::format("a bias of shape {} does not fit the last dimension of {}",
                                               to_string(c.shape(1)), to_string(c.shape(0)));
        c.require(c.rank(1) == 1 && c.rank(0) >= 1, misfit);
        c.b.require_equal(c.shape(1)[0], c.shape(0).back(), misfit, "features");
        parts.push_back(c.in(1));
    }
    c.out(0, c.b.map(
                 parts, c.dtype(0),
                 [&](ScalarBody& body, Ids v) -> ScalarId {
                     return f(v.size() > 1 ? Sx(body, v[0]) + Sx(body, v[1]) : Sx(body, v[0]));
                 },
                 role));
}

void bias_gelu(NodeContext& c) {
    c.in(1);  // required
    biased(c, gelu_of, "gelu");
}
void fast_gelu(NodeContext& c) { biased(c, fast_gelu_of, "gelu"); }

void gelu_lowering(NodeContext& c) {
    c.out(0, c.b.map(
                 {c.in(0)}, c.dtype(0), [](ScalarBody& body, Ids v) -> ScalarId { return gelu_of(Sx(body, v[0])); },
                 "gelu"));
}

/// x * sigmoid(alpha * x)
void quick_gelu(NodeContext& c) {
    const auto alpha = static_cast<double>(c.node.attr_float("alpha", 1.702F));
    c.out(0, c.b.map(
                 {c.in(0)}, c.dtype(0),
                 [&](ScalarBody& body, Ids v) -> ScalarId {
                     const Sx x(body, v[0]);
                     return x * (x.of(1) / ((x * -alpha).exp() + 1));
                 },
                 "quick_gelu"));
}

/// softmax(data + bias) over all dimensions from `axis` on. The bias broadcasts over the first dimensions, or
/// (is_inner_broadcast) over those in front of `axis`; both are broadcasts of its own dimensions of 1.
void bias_softmax(NodeContext& c) {
    const size_t rank = c.rank(0);
    const auto along = static_cast<size_t>(c.axis_attr("axis", 1, rank));
    c.require(c.rank(1) <= rank,
              fmt::format("a bias of shape {} does not broadcast to {}", to_string(c.shape(1)), to_string(c.shape(0))));
    for (size_t k = 0; k < c.rank(1); ++k)
        c.b.require_spread(
            c.shape(1)[k], c.shape(0)[rank - c.rank(1) + k],
            fmt::format("a bias of shape {} does not broadcast to {}", to_string(c.shape(1)), to_string(c.shape(0))));
    c.out(0, softmax(c.b, c.b.binary(ScalarOp::Add, c.in(0), c.in(1)), axis_range(along, rank)));
}

/// Refuses training: nothing is dropped in inference.
void require_inference(NodeContext& c, size_t mode) {
    if (!c.has(mode)) return;
    const auto known = c.b.int_contents(c.in(mode));
    if (!known || known->size() != 1 || !known->front().is_constant(0))
        c.unsupported("training_mode must be false, and known before the model runs");
}

/// data + bias + residual
void bias_dropout(NodeContext& c) {
    require_inference(c, 4);
    ValueId y = c.b.binary(ScalarOp::Add, c.in(0), c.in(1));
    if (c.has(2)) y = c.b.binary(ScalarOp::Add, y, c.in(2));
    c.out(0, y);
    if (c.uses_output(1)) c.out(1, c.b.full(c.b.shape(y), DType::Bool, 1));
}

void bitmask_dropout(NodeContext& c) {
    require_inference(c, 2);
    c.out(0, c.b.copy(c.in(0)));
}

}  // namespace

std::vector<OpLowering> contrib_activation_lowerings() {
    constexpr std::string_view kDomain = "com.microsoft";
    return {
        {kDomain, "BiasDropout", 1, bias_dropout}, {kDomain, "BiasGelu", 1, bias_gelu},
        {kDomain, "BiasSoftmax", 1, bias_softmax}, {kDomain, "BitmaskDropout", 1, bitmask_dropout},
        {kDomain, "FastGelu", 1, fast_gelu},       {kDomain, "Gelu", 1, gelu_lowering},
        {kDomain, "QuickGelu", 1, quick_gelu},
    };
}

}  // namespace tilewright
