#include "program/scalar_ops.h"

#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace tilewright {

namespace {

constexpr ScalarOpInfo kOps[] = {
#define TW_SCALAR_OP(op, text, arity, takes, gives, cost, cuda) \
    {ScalarOp::op, text, arity, Takes::takes, Gives::gives, cost, cuda},
#define TW_SCALAR_FUNCTION(op, text, c, cuda, cost, ...) \
    {ScalarOp::op, #text, 1, Takes::Floats, Gives::Same, cost, #cuda},
#include "program/scalar_ops.def"
};

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr ScalarFunction kFunctions[] = {
#define TW_SCALAR_FUNCTION(op, text, c, cuda, cost, curve, low, high, ulp, onnx, since) \
    {ScalarOp::op, #c, static_cast<double (*)(double)>(std::c), Curve::curve, low, high, ulp, onnx, since},
#include "program/scalar_ops.def"
};

/// For each operator, its position in kFunctions + 1, or 0.
constexpr auto kPositions = [] {
    std::array<uint8_t, std::size(kOps)> at{};
    for (size_t k = 0; k < std::size(kFunctions); ++k)
        at[static_cast<size_t>(kFunctions[k].op)] = static_cast<uint8_t>(k + 1);
    return at;
}();

}  // namespace

const ScalarOpInfo& scalar_op_info(ScalarOp op) {
    const auto k = static_cast<size_t>(op);
    TW_CHECK(k < std::size(kOps), "scalar operator {}", k);
    return kOps[k];
}

std::span<const ScalarFunction> scalar_functions() { return kFunctions; }

const ScalarFunction* scalar_function(ScalarOp op) {
    const uint8_t at = kPositions.at(static_cast<size_t>(op));
    return at == 0 ? nullptr : &kFunctions[at - 1];
}

std::string_view to_string(ScalarOp op) { return scalar_op_info(op).text; }
int arity(ScalarOp op) { return scalar_op_info(op).arity; }

std::optional<ScalarOp> scalar_op_from_string(std::string_view name) {
    for (const ScalarOpInfo& i : kOps)
        if (i.text == name && i.arity > 0) return i.op;
    return std::nullopt;
}

}  // namespace tilewright
