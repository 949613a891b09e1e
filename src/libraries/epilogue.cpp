#include "libraries/epilogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "program/scalar_eval.h"

namespace tilewright {

namespace {

double activate(Activation a, double x, double most) {
    switch (a) {
        case Activation::None:
            return x;
        case Activation::Relu:
            return std::max(x, 0.0);
        case Activation::ClippedRelu:
            return std::clamp(x, 0.0, most);
        case Activation::Gelu:
            return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
        case Activation::GeluTanh:
            return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
        case Activation::Silu:
            return x / (1 + std::exp(-x));
        case Activation::Sigmoid:
            return 1 / (1 + std::exp(-x));
        case Activation::Tanh:
            return std::tanh(x);
        case Activation::HardSwish:
            return x * std::clamp(x / 6 + 0.5, 0.0, 1.0);
    }
    return x;
}

constexpr Activation kActivations[] = {Activation::None,    Activation::Relu,     Activation::ClippedRelu,
                                       Activation::Gelu,    Activation::GeluTanh, Activation::Silu,
                                       Activation::Sigmoid, Activation::Tanh,     Activation::HardSwish};

/// Returns why a node is not allowed in a library's epilogue. A function without comparisons and rounding is determined
/// by its values at a dense set of points. Conversions are allowed only to the result's type, to which the library
/// rounds too.
std::optional<Refusal> against(const ScalarNode& n, DType result) {
    switch (n.op) {
        case ScalarOp::Cast:
            if (result != DType::F32 && (n.dtype == DType::F32 || n.dtype == result)) return std::nullopt;
            break;
        case ScalarOp::Access:
        case ScalarOp::Acc:
        case ScalarOp::Const:
        case ScalarOp::Add:
        case ScalarOp::Sub:
        case ScalarOp::Mul:
        case ScalarOp::Div:
        case ScalarOp::Pow:
        case ScalarOp::Neg:
        case ScalarOp::Min:
        case ScalarOp::Max:
        case ScalarOp::Exp:
        case ScalarOp::Erf:
        case ScalarOp::Tanh:
            if (n.dtype == DType::F32 || n.dtype == result) return std::nullopt;
            return Refusal{"its epilogue has types other than f32 and the result's"};
        default:
            break;
    }
    return Refusal{fmt::format("its epilogue has {}", to_string(n.op))};
}

/// The epilogue as a function of the sum and of its operands.
class EpilogueFunction {
  public:
    explicit EpilogueFunction(const ScalarBody& body) : body_(body) {
        std::set<uint32_t> slots;
        for (const ScalarNode& n : body.nodes())
            if (n.op == ScalarOp::Access) slots.insert(n.slot);
        slots_.assign(slots.begin(), slots.end());
    }

    const std::vector<uint32_t>& slots() const { return slots_; }

    double operator()(double sum, const std::vector<double>& read) const {
        if (body_.empty()) return sum;
        std::vector<ScalarValue> values;
        for (const ScalarNode& n : body_.nodes()) {
            ScalarValue v;
            if (n.op == ScalarOp::Acc) {
                v.f = sum;
            } else if (n.op == ScalarOp::Access) {
                v.f = read[static_cast<size_t>(std::find(slots_.begin(), slots_.end(), n.slot) - slots_.begin())];
            } else if (n.op == ScalarOp::Const) {
                v.f = n.value;
            } else if (n.op == ScalarOp::Cast) {
                v = values[n.a.value];
            } else {
                const auto at = [&](ScalarId k) { return k ? values[k.value] : ScalarValue{}; };
                v = eval_node(n, body_[n.a].dtype, at(n.a), at(n.b), at(n.c));
            }
            values.push_back(v);
        }
        return values[body_.root().value].f;
    }

  private:
    const ScalarBody& body_;
    std::vector<uint32_t> slots_;
};

constexpr double kFarthest = 40;  ///< argument at which functions are compared

/// Whether f is activation(scale * sum + all operands): compares values, most densely where activations bend. `most`:
/// of ClippedRelu.
bool is_function(const EpilogueFunction& f, Activation activation, double scale, double most) {
    std::vector<double> read(f.slots().size());
    size_t step = 0;
    double x = -kFarthest;
    while (x <= kFarthest) {
        for (int variant = 0; variant < 3; ++variant) {
            double argument = scale * x;
            for (double& r : read) argument += r = variant == 0 ? 0.0 : static_cast<double>(++step % 29) / 4 - 3.6;
            const double expected = activate(activation, argument, most);
            if (!(std::fabs(f(x, read) - expected) <= 2e-6 * (1 + std::fabs(expected)))) return false;
        }
        x += std::fabs(x) < 10 ? 0.0737 : 1.37;
    }
    return true;
}

}  // namespace

std::variant<LibraryEpilogue, Refusal> library_epilogue(const ScalarBody& epilogue, DType result) {
    for (const ScalarNode& n : epilogue.nodes())
        if (auto refusal = against(n, result)) return *std::move(refusal);
    const EpilogueFunction f(epilogue);
    const std::vector<double> none(f.slots().size(), 0.0);
    const double slope = f(1, none) - f(0, none);
    const double most = f(2 * kFarthest, none);
    const bool clips = most > 0 && most < kFarthest;
    for (const Activation a : kActivations)
        for (const double scale : {1.0, slope}) {
            if ((scale != 1 && a != Activation::None) || (a == Activation::ClippedRelu && !clips)) continue;
            if (is_function(f, a, scale, most))
                return LibraryEpilogue{scale, a, a == Activation::ClippedRelu ? most : 0, f.slots()};
        }
    return Refusal{"its epilogue is not a sum followed by a NaN-propagating activation"};
}

}  // namespace tilewright
