// Convolutions of com.microsoft: with a sum and an activation (FusedConv), and with channels last (NhwcConv,
// NhwcFusedConv).

#include "base/error.h"
#include "ops/conv.h"
#include "ops/families.h"
#include "ops/named_activation.h"
#include "ops/scalar_math.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

/// The attribute "activation" with its parameters; none if there is no such attribute.
std::optional<NamedActivation> activation_of(const NodeContext& c) {
    const std::string name = c.node.attr_string("activation", "");
    if (name.empty()) return std::nullopt;
    const ActivationKind* kind = find_activation(name);
    c.require(kind != nullptr, fmt::format("the activation function {} is unknown", quoted_name(name)));
    const std::vector<float> given = c.node.attr_floats("activation_params", {});
    const auto parameters = static_cast<size_t>(kind->alpha.has_value()) + static_cast<size_t>(kind->beta.has_value());
    c.require(given.empty() || given.size() == parameters,
              fmt::format("attribute 'activation_params' has {} numbers, and {} has {} parameters", given.size(), name,
                          parameters));
    NamedActivation a{kind->name, kind->alpha.value_or(0), kind->beta.value_or(0)};
    if (!given.empty()) a.alpha = static_cast<double>(given[0]);
    if (given.size() > 1) a.beta = static_cast<double>(given[1]);
    return a;
}

/// activation(y + sum), the sum at input 3 with y's shape.
ValueId finished(NodeContext& c, ValueId y) {
    const std::optional<NamedActivation> f = activation_of(c);
    std::vector<ValueId> parts = {y};
    if (c.has(3)) {
        const std::string misfit =
            fmt::format("input 3 has shape {}, and the convolution {}", to_string(c.shape(3)), to_string(c.b.shape(y)));
        c.require(c.rank(3) == c.b.rank(y), misfit);
        for (size_t k = 0; k < c.rank(3); ++k) c.b.require_equal(c.shape(3)[k], c.b.shape(y)[k], misfit);
        parts.push_back(c.in(3));
    }
    if (!f && parts.size() == 1) return y;
    return c.b.map(
        parts, c.b.dtype(y),
        [&](ScalarBody& body, Ids v) -> ScalarId {
            const Sx sum = v.size() > 1 ? Sx(body, v[0]) + Sx(body, v[1]) : Sx(body, v[0]);
            return f ? (*f)(sum) : sum;
        },
        "fused");
}

void fused_conv(NodeContext& c) { c.out(0, finished(c, biased_convolution(c, c.in(0)))); }

/// x [n, spatial..., c]; weights as in Conv.
void nhwc_fused_conv(NodeContext& c) {
    c.out(0, finished(c, channels_last(c, biased_convolution(c, channels_first(c, c.in(0))))));
}

}  // namespace

std::vector<OpLowering> contrib_conv_lowerings() {
    constexpr std::string_view kDomain = "com.microsoft";
    return {
        {kDomain, "FusedConv", 1, fused_conv},
        {kDomain, "NhwcConv", 1, nhwc_fused_conv},
        {kDomain, "NhwcFusedConv", 1, nhwc_fused_conv},
    };
}

}  // namespace tilewright
