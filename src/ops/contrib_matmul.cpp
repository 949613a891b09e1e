// Products of com.microsoft with transposed operands or an activation: FusedMatMul, TransposeMatMul, FusedGemm.

#include <algorithm>

#include "base/error.h"
#include "ops/families.h"
#include "ops/matmul.h"
#include "ops/named_activation.h"
#include "ops/scalar_math.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

/// [rows, batch..., columns]   ->   [batch..., rows, columns] with `batch`; then the last two are exchanged with
/// `last`.
ValueId transposed(NodeContext& c, size_t input, bool batch, bool last) {
    const size_t rank = c.rank(input);
    if (rank < 2) return c.in(input);
    std::vector<int64_t> order;
    for (size_t k = 0; k < rank; ++k) order.push_back(static_cast<int64_t>(k));
    if (batch) std::rotate(order.begin(), order.begin() + 1, order.end() - 1);
    if (last) std::swap(order[rank - 1], order[rank - 2]);
    return std::is_sorted(order.begin(), order.end()) ? c.in(input) : c.b.transpose(c.in(input), order);
}

/// y = alpha * op(A) * op(B)
void fused_matmul(NodeContext& c) {
    const auto flag = [&](const char* name) { return c.node.attr_int(name, 0) != 0; };
    const ValueId a = transposed(c, 0, flag("transBatchA"), flag("transA"));
    const ValueId b = transposed(c, 1, flag("transBatchB"), flag("transB"));
    const ValueId y = c.b.matmul(a, b);
    const auto alpha = static_cast<double>(c.node.attr_float("alpha", 1));
    c.out(0, alpha == 1 ? y : c.b.binary(ScalarOp::Mul, y, alpha));
}

/// activation(alpha * A * B + beta * C)
void fused_gemm(NodeContext& c) {
    const ValueId y = gemm(c);
    const std::string name = c.node.attr_string("activation", "");
    if (name.empty()) return c.out(0, y);
    const ActivationKind* kind = find_activation(name);
    c.require(kind != nullptr, fmt::format("the activation function {} is unknown", quoted_name(name)));
    c.require(is_float(c.dtype(0)),
              fmt::format("a floating-point input is expected, and its type is {}", to_string(c.dtype(0))));
    const auto parameter = [&](const char* attribute, const std::optional<double>& fallback) {
        return static_cast<double>(c.node.attr_float(attribute, static_cast<float>(fallback.value_or(0))));
    };
    const char* second = kind->name == "selu" ? "activation_gamma" : "activation_beta";
    const NamedActivation f{kind->name, parameter("activation_alpha", kind->alpha), parameter(second, kind->beta)};
    c.out(0, c.b.map(
                 {y}, c.b.dtype(y), [&](ScalarBody& body, Ids v) -> ScalarId { return f(Sx(body, v[0])); }, "fused"));
}

}  // namespace

std::vector<OpLowering> contrib_matmul_lowerings() {
    constexpr std::string_view kDomain = "com.microsoft";
    return {
        {kDomain, "FusedGemm", 1, fused_gemm},
        {kDomain, "FusedMatMul", 1, fused_matmul},
        {kDomain, "TransposeMatMul", 1, fused_matmul},
    };
}

}  // namespace tilewright
