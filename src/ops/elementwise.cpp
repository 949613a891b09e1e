// Elementwise arithmetic, comparison, logic: one scalar body over broadcast operands.

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/families.h"
#include "ops/scalar_math.h"
#include "program/scalar_ops.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

bool is_float_only(ScalarOp op) { return scalar_op_info(op).takes == Takes::Floats; }

void require_float(NodeContext& c, size_t input) {
    c.require(is_float(c.dtype(input)),
              fmt::format("a floating-point input is expected, and its type is {}", to_string(c.dtype(input))));
}

/// y = op(x)
template <ScalarOp op>
void unary(NodeContext& c) {
    if (is_float_only(op)) require_float(c, 0);
    c.out(0, c.b.unary(op, c.in(0)));
}

/// y = 1 / x
void reciprocal(NodeContext& c) {
    require_float(c, 0);
    c.out(0, c.b.map(
                 {c.in(0)}, c.dtype(0),
                 [](ScalarBody& body, Ids x) -> ScalarId {
                     const Sx a(body, x[0]);
                     return a.of(1) / a;
                 },
                 "reciprocal"));
}

/// The second operand of an arithmetic operator. Before opset 7 there was no implicit broadcasting: `axis` is the
/// position of b's dimensions in a's.    a [2, 3, 4, 5], b [3, 4], axis 1    ->    b [3, 4, 1]
ValueId right_operand(NodeContext& c) {
    const ValueId y = c.in(1);
    if (c.node.opset >= 7 || c.node.attr_int("broadcast", 0) == 0 || !c.node.has("axis")) return y;
    const size_t axis = static_cast<size_t>(c.axis_attr("axis", 0, c.rank(0)));
    c.require(axis + c.rank(1) <= c.rank(0),
              fmt::format("a second input of rank {} does not fit at axis {} of a first of rank {}", c.rank(1), axis,
                          c.rank(0)));
    std::vector<int64_t> ones;
    for (size_t k = axis + c.rank(1); k < c.rank(0); ++k) ones.push_back(static_cast<int64_t>(k - axis));
    return ones.empty() ? y : c.b.unsqueeze(y, ones);
}

/// z = op(x, y)
template <ScalarOp op>
void binary(NodeContext& c) {
    c.out(0, c.b.binary(op, c.in(0), right_operand(c)));
}

void mod(NodeContext& c) {
    const bool fmod = c.node.attr_int("fmod", 0) != 0;
    c.require(fmod || !is_float(c.dtype(0)), "floating-point inputs need the attribute fmod = 1");
    c.out(0, c.b.binary(fmod ? ScalarOp::TruncMod : ScalarOp::FloorMod, c.in(0), c.in(1)));
}

/// The value of a constant one-element tensor.
std::optional<double> known_number(NodeContext& c, size_t i) {
    const Tensor* t = c.b.contents(c.in(i));
    return t != nullptr && t->count() == 1 ? std::optional(t->get(0)) : std::nullopt;
}

/// The result has the base's type; the exponent may have another. Small integer exponents become products, so that
/// pow(x, 2) equals the square in a normalisation.
void pow(NodeContext& c) {
    const DType t = c.dtype(0), base = compute_type(t), exponent = compute_type(c.dtype(1));
    const auto known = known_number(c, 1);
    const bool rank_stays = known && c.rank(1) <= c.rank(0);
    if (rank_stays && (*known == 1 || *known == 2 || *known == 3)) {
        c.out(0, c.b.map(
                     {c.in(0)}, t,
                     [&](ScalarBody& body, Ids x) -> ScalarId {
                         const Sx a(body, x[0]);
                         return *known == 1 ? a : *known == 2 ? a * a : a * a * a;
                     },
                     "pow"));
        return;
    }
    // With different types: in double if either is a float, else in 64 bits.
    DType common = base;
    if (base != exponent) {
        if (is_float(base) && !(exponent == DType::F64))
            common = base;
        else if (is_float(base) || is_float(exponent))
            common = DType::F64;
        else
            common = DType::I64;
    }
    c.out(0, c.b.map(
                 {c.in(0), right_operand(c)}, t,
                 [&](ScalarBody& body, Ids x) -> ScalarId {
                     const Sx a(body, x[0]), b(body, x[1]);
                     return a.cast(common).apply(ScalarOp::Pow, b.cast(common)).cast(base);
                 },
                 "pow"));
}

void bit_shift(NodeContext& c) {
    const std::string direction = c.node.attr_string("direction", "");
    c.require(direction == "LEFT" || direction == "RIGHT",
              fmt::format("attribute 'direction' should be LEFT or RIGHT, and is {}", quoted_name(direction)));
    c.out(0, c.b.binary(direction == "LEFT" ? ScalarOp::ShiftLeft : ScalarOp::ShiftRight, c.in(0), c.in(1)));
}

void logical_not(NodeContext& c) {
    c.require(c.dtype(0) == DType::Bool, "a boolean input is expected");
    c.out(0, c.b.unary(ScalarOp::BitNot, c.in(0)));
}

/// Operands of one expression. More become a tree of expressions, because code size and compile time grow with it.
constexpr size_t kMaxOperands = 32;

/// z = op(op(a, b), ...) over any number of inputs; a mean divides by their number.
///
///     sum of 70 inputs -> sum(sum(x0 .. x31), sum(x32 .. x63), sum(x64 .. x69))
ValueId chain(NodeContext& c, ScalarOp op, bool mean) {
    std::vector<ValueId> inputs;
    for (size_t k = 0; k < c.input_count(); ++k) inputs.push_back(c.in(k));
    c.require(!inputs.empty(), "at least one input is expected");
    for (size_t k = 1; k < inputs.size(); ++k)
        c.require(c.dtype(k) == c.dtype(0), fmt::format("the inputs have different types, {} and {}",
                                                        to_string(c.dtype(0)), to_string(c.dtype(k))));
    if (inputs.size() == 1) return inputs[0];
    const auto combined = [&](const std::vector<ValueId>& some, DType type, bool last) {
        return c.b.map(
            some, type,
            [&](ScalarBody& body, Ids x) -> ScalarId {
                Sx sum(body, x[0]);
                for (size_t k = 1; k < x.size(); ++k) sum = sum.apply(op, Sx(body, x[k]));
                return mean && last ? sum / static_cast<double>(c.input_count()) : sum;
            },
            mean ? "mean" : to_string(op));
    };
    while (inputs.size() > kMaxOperands) {
        std::vector<ValueId> fewer;
        for (size_t k = 0; k < inputs.size(); k += kMaxOperands) {
            const size_t end = std::min(k + kMaxOperands, inputs.size());
            // Rounded to the inputs' type only at the end.
            fewer.push_back(
                combined({inputs.begin() + static_cast<int64_t>(k), inputs.begin() + static_cast<int64_t>(end)},
                         compute_type(c.dtype(0)), false));
        }
        inputs = std::move(fewer);
    }
    return combined(inputs, c.dtype(0), true);
}

template <ScalarOp op>
void variadic(NodeContext& c) {
    c.out(0, chain(c, op, false));
}
void mean(NodeContext& c) { c.out(0, chain(c, ScalarOp::Add, true)); }

void is_inf(NodeContext& c) {
    require_float(c, 0);
    const bool negative = c.node.attr_int("detect_negative", 1) != 0;
    const bool positive = c.node.attr_int("detect_positive", 1) != 0;
    constexpr double kInf = std::numeric_limits<double>::infinity();
    c.out(0, c.b.map(
                 {c.in(0)}, DType::Bool,
                 [&](ScalarBody& body, Ids x) -> ScalarId {
                     const Sx a(body, x[0]);
                     if (negative && positive) return a.apply(ScalarOp::IsInf);
                     if (!negative && !positive) return body.int_constant(DType::Bool, 0);
                     return a.apply(ScalarOp::Eq, positive ? kInf : -kInf);
                 },
                 "isinf"));
}

void where(NodeContext& c) {
    c.require(c.dtype(0) == DType::Bool, "the condition must be boolean");
    c.out(0, c.b.select(c.in(0), c.in(1), c.in(2)));
}

/// min(max(x, low), high): NaN is preserved, and `high` applies if low > high. Bounds are attributes before opset 11,
/// optional inputs since.
void clip(NodeContext& c) {
    const bool inputs = c.node.opset >= 11;
    const DType t = c.dtype(0);
    std::vector<ValueId> operands = {c.in(0)};
    std::vector<std::pair<ScalarOp, double>> bounds;
    for (const auto& [index, name, op] : {std::tuple(1, "min", ScalarOp::Max), std::tuple(2, "max", ScalarOp::Min)}) {
        const auto i = static_cast<size_t>(index);
        if (inputs && c.has(i)) {
            c.require(c.dtype(i) == t,
                      fmt::format("'{}' has type {}, and the input {}", name, to_string(c.dtype(i)), to_string(t)));
            c.require(c.rank(i) == 0 || c.b.count(c.in(i)).is_constant(1), fmt::format("'{}' must be a scalar", name));
            operands.push_back(c.rank(i) == 0 ? c.in(i) : c.b.reshape(c.in(i), {}));
            bounds.emplace_back(op, 0);
        } else if (!inputs && c.node.has(name)) {
            bounds.emplace_back(op, c.node.attr_float(name, 0));
        }
    }
    if (bounds.empty()) return c.out(0, c.in(0));
    c.out(0, c.b.map(
                 operands, t,
                 [&](ScalarBody& body, Ids x) -> ScalarId {
                     Sx y(body, x[0]);
                     for (size_t k = 0; k < bounds.size(); ++k)
                         y = inputs ? y.apply(bounds[k].first, Sx(body, x[k + 1]))
                                    : y.apply(bounds[k].first, bounds[k].second);
                     return y;
                 },
                 "clip"));
}

void identity(NodeContext& c) { c.out(0, c.in(0)); }

/// Inference: the identity, with an all-true mask.
void dropout(NodeContext& c) {
    if (c.node.opset >= 12 && c.has(2)) {
        const auto training = c.b.int_contents(c.in(2));
        const auto ratio = c.has(1) ? known_number(c, 1) : std::optional(0.5);
        const bool off = training && training->size() == 1 && training->front().is_constant(0);
        if (!off && ratio != 0.0) c.unsupported("training mode draws random numbers; only inference is compiled");
    }
    c.out(0, c.in(0));
    if (c.uses_output(1)) c.out(1, c.b.full(c.shape(0), c.node.opset >= 10 ? DType::Bool : c.dtype(0), 1));
}

}  // namespace

std::vector<OpLowering> elementwise_lowerings() {
    std::vector<OpLowering> all = {
#define TW_SCALAR_FUNCTION(op, text, c, cuda, cost, curve, low, high, ulp, onnx, since) \
    {"", onnx, since, unary<ScalarOp::op>},
#include "program/scalar_ops.def"

        {"", "Abs", 1, unary<ScalarOp::Abs>},
        {"", "BitwiseNot", 18, unary<ScalarOp::BitNot>},
        {"", "IsNaN", 9, unary<ScalarOp::IsNan>},
        {"", "Neg", 1, unary<ScalarOp::Neg>},
        {"", "Not", 1, logical_not},
        {"", "Reciprocal", 1, reciprocal},
        {"", "Sign", 9, unary<ScalarOp::Sign>},

        {"", "Add", 1, binary<ScalarOp::Add>},
        {"", "Sub", 1, binary<ScalarOp::Sub>},
        {"", "Mul", 1, binary<ScalarOp::Mul>},
        {"", "Div", 1, binary<ScalarOp::Div>},
        {"", "Mod", 10, mod},
        {"", "Pow", 1, pow},
        {"", "And", 1, binary<ScalarOp::BitAnd>},
        {"", "Or", 1, binary<ScalarOp::BitOr>},
        {"", "Xor", 1, binary<ScalarOp::BitXor>},
        {"", "BitwiseAnd", 18, binary<ScalarOp::BitAnd>},
        {"", "BitwiseOr", 18, binary<ScalarOp::BitOr>},
        {"", "BitwiseXor", 18, binary<ScalarOp::BitXor>},
        {"", "BitShift", 11, bit_shift},
        {"", "Equal", 1, binary<ScalarOp::Eq>},
        {"", "Greater", 1, binary<ScalarOp::Gt>},
        {"", "GreaterOrEqual", 12, binary<ScalarOp::Ge>},
        {"", "Less", 1, binary<ScalarOp::Lt>},
        {"", "LessOrEqual", 12, binary<ScalarOp::Le>},

        {"", "Max", 1, variadic<ScalarOp::Max>},
        {"", "Mean", 1, mean},
        {"", "Min", 1, variadic<ScalarOp::Min>},
        {"", "Sum", 1, variadic<ScalarOp::Add>},

        {"", "Clip", 1, clip},
        {"", "Dropout", 1, dropout},
        {"", "Identity", 1, identity},
        {"", "IsInf", 10, is_inf},
        {"", "Where", 9, where},
    };
    std::erase_if(all, [](const OpLowering& r) { return r.op.empty(); });  // functions that ONNX does not have
    return all;
}

}  // namespace tilewright
