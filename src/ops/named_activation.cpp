#include "ops/named_activation.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

namespace tilewright {

Sx NamedActivation::operator()(Sx x) const {
    if (name == "identity") return x;
    if (name == "sigmoid") return x.of(1) / ((-x).exp() + 1);
    if (name == "tanh") return x.tanh();
    if (name == "relu") return x.max(0);
    if (name == "affine") return x * alpha + beta;
    if (name == "leakyrelu") return (x < 0).choose(x * alpha, x);
    if (name == "thresholdedrelu") return (x > alpha).choose(x, x.of(0));
    if (name == "scaledtanh") return (x * beta).tanh() * alpha;
    if (name == "hardsigmoid") return (x * alpha + beta).min(1).max(0);
    if (name == "elu") return (x < 0).choose(x.expm1() * alpha, x);
    if (name == "selu") return (x < 0).choose(x.expm1() * alpha, x) * beta;
    if (name == "softsign") return x / (x.abs() + 1);
    if (name == "clip") return x.max(alpha).min(beta);
    if (name == "hardswish") return x * (x / 6 + 0.5).min(1).max(0);
    if (name == "gelu") return x * 0.5 * ((x / std::numbers::sqrt2).erf() + 1);
    if (name == "quickgelu") return x / ((x * -alpha).exp() + 1);
    return x.max(0) + (-x.abs()).exp().log1p();  // softplus
}

const ActivationKind* find_activation(std::string_view name) {
    constexpr std::optional<double> kNone;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    static const std::vector<ActivationKind> kinds = {
        {"sigmoid", kNone, kNone},
        {"tanh", kNone, kNone},
        {"relu", kNone, kNone},
        {"affine", 1.0, 0.0},
        {"leakyrelu", 0.01, kNone},
        {"thresholdedrelu", 1.0, kNone},
        {"scaledtanh", 1.0, 1.0},
        {"hardsigmoid", 0.2, 0.5},
        {"elu", 1.0, kNone},
        {"softsign", kNone, kNone},
        {"softplus", kNone, kNone},
        {"identity", kNone, kNone, false},
        {"clip", -kInfinity, kInfinity, false},
        {"gelu", kNone, kNone, false},
        {"hardswish", kNone, kNone, false},
        {"quickgelu", 1.702, kNone, false},
        {"selu", 1.67326319217681884765625, 1.05070102214813232421875, false},
    };
    std::string lower;
    for (const char ch : name) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(ch)));
    const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.name == lower; });
    return kind == kinds.end() ? nullptr : &*kind;
}

}  // namespace tilewright
