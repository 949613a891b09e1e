// Quantised operators of the domain com.microsoft, as ONNX Runtime's quantiser emits them (its ContribOperators.md):
//
//     QLinearAdd(a, b)  ->  y = saturate(round(((a - za) * sa + (b - zb) * sb) / sy) + zy)
//
// The inner operator computes on real numbers in f32. ONNX Runtime instead multiplies by ratios of scales, computes its
// sigmoid from a polynomial and its softmax from a table of 256 integers. Where a result is within that error of the
// middle between two quanta, the other quantum may result.

#include "base/error.h"
#include "ops/conv.h"
#include "ops/families.h"
#include "ops/pool.h"
#include "ops/quantised.h"
#include "ops/scalar_math.h"
#include "ops/softmax.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

void require_one_number(NodeContext& c, size_t input, std::string_view what) {
    c.require(
        c.b.count(c.in(input)).is_constant(1),
        fmt::format("input {} ({}) must contain one number, but has shape {}", input, what, to_string(c.shape(input))));
}

/// Scale and zero point at two inputs (`at` and `at` + 1), the latter of type `q`; scalars.
struct Quantisation {
    ValueId scale;
    std::optional<ValueId> zero;
};

Quantisation scale_and_zero(NodeContext& c, size_t at, size_t zero, DType q) {
    require_one_number(c, at, "a scale");
    c.require(c.dtype(at) == DType::F32,
              fmt::format("input {} (a scale) should be f32, and is {}", at, to_string(c.dtype(at))));
    Quantisation out{c.b.reshape(c.in(at), {}), std::nullopt};
    if (!c.has(zero)) return out;
    require_one_number(c, zero, "a zero point");
    c.require(c.dtype(zero) == q, fmt::format("input {} (a zero point) should be {}, as the numbers are, and is {}",
                                              zero, to_string(q), to_string(c.dtype(zero))));
    out.zero = c.b.reshape(c.in(zero), {});
    return out;
}

Quantisation quantisation(NodeContext& c, size_t at, DType q) { return scale_and_zero(c, at, at + 1, q); }

void require_eight_bits(NodeContext& c, size_t input) {
    c.require(c.dtype(input) == DType::U8 || c.dtype(input) == DType::I8,
              fmt::format("input {} should be u8 or i8, and is {}", input, to_string(c.dtype(input))));
}

/// The dequantised input `x`, whose scale and zero point are inputs `x` + 1 and `x` + 2.
ValueId real(NodeContext& c, size_t x) {
    require_eight_bits(c, x);
    const Quantisation q = quantisation(c, x + 1, c.dtype(x));
    std::vector<ValueId> inputs = {c.in(x), q.scale};
    if (q.zero) inputs.push_back(*q.zero);
    return c.b.map(
        inputs, DType::F32,
        [](ScalarBody& body, Ids v) -> ScalarId {
            Sx integers = Sx(body, v[0]).cast(DType::I32);
            if (v.size() > 2) integers = integers - Sx(body, v[2]).cast(DType::I32);
            return integers.cast(DType::F32) * Sx(body, v[1]);
        },
        "real");
}

/// Quantises with the scale and zero point at inputs `at` and `at` + 1, to the latter's type; without it, to input 0's.
ValueId requantised(NodeContext& c, ValueId y, size_t at, DType to) {
    const Quantisation q = quantisation(c, at, to);
    std::vector<ValueId> inputs = {c.b.binary(ScalarOp::Div, y, q.scale)};
    if (q.zero) inputs.push_back(*q.zero);
    return c.b.map(
        inputs, to,
        [&](ScalarBody& body, Ids v) -> ScalarId {
            return quantised(Sx(body, v[0]), v.size() > 1 ? std::optional(Sx(body, v[1])) : std::nullopt, to);
        },
        "quantised");
}

/// Inputs: a, scale, zero point, b, scale, zero point, scale and zero point of the output.
template <ScalarOp op>
void q_linear_binary(NodeContext& c) {
    c.require(c.dtype(0) == c.dtype(3), fmt::format("both operands should have one type, and have {} and {}",
                                                    to_string(c.dtype(0)), to_string(c.dtype(3))));
    const ValueId a = real(c, 0), b = real(c, 3);
    c.out(0, requantised(c, c.b.binary(op, a, b), 6, c.dtype(0)));
}

/// Inputs: x, scale, zero point, scale and zero point of the output.
void q_linear_unary(NodeContext& c, const std::function<ValueId(ValueId)>& f) {
    c.out(0, requantised(c, f(real(c, 0)), 3, c.dtype(0)));
}

void q_linear_sigmoid(NodeContext& c) {
    q_linear_unary(c, [&](ValueId x) {
        return c.b.map(
            {x}, DType::F32,
            [](ScalarBody& body, Ids v) -> ScalarId {
                const Sx a(body, v[0]);
                return a.of(1) / ((-a).exp() + 1);
            },
            "sigmoid");
    });
}

void q_linear_leaky_relu(NodeContext& c) {
    const auto alpha = static_cast<double>(c.node.attr_float("alpha", 0.01F));
    q_linear_unary(c, [&](ValueId x) {
        return c.b.map(
            {x}, DType::F32,
            [&](ScalarBody& body, Ids v) -> ScalarId {
                const Sx a(body, v[0]);
                return a.apply(ScalarOp::Ge, 0.0).choose(a, a * alpha);
            },
            "leaky_relu");
    });
}

/// `opset` selects the definition of Softmax: before 13 all dimensions from `axis` on are one.
void q_linear_softmax(NodeContext& c) {
    const int64_t opset = c.node.attr_int("opset", 0);
    c.require(opset >= 1, "attribute 'opset' (which selects the definition of Softmax) is missing");
    const size_t rank = c.rank(0);
    const auto along = static_cast<size_t>(c.axis_attr("axis", opset < 13 ? 1 : -1, rank));
    std::vector<int64_t> axes = {static_cast<int64_t>(along)};
    for (size_t k = along + 1; k < rank && opset < 13; ++k) axes.push_back(static_cast<int64_t>(k));
    q_linear_unary(c, [&](ValueId x) { return softmax(c.b, x, axes); });
}

/// With channels_last the input is [n, spatial..., c].
void q_linear_pool(NodeContext& c, ValueId (*pool)(NodeContext&, ValueId)) {
    const bool last = c.node.attr_int("channels_last", 0) != 0;
    c.require(c.rank(0) >= 3,
              fmt::format("an input of rank 3 or more is expected, and its shape is {}", to_string(c.shape(0))));
    q_linear_unary(c, [&](ValueId x) { return last ? channels_last(c, pool(c, channels_first(c, x))) : pool(c, x); });
}

void q_linear_average_pool(NodeContext& c) { q_linear_pool(c, average_pool); }
void q_linear_global_average_pool(NodeContext& c) { q_linear_pool(c, global_average_pool); }

/// Inputs: scale and zero point of the output, then x, scale and zero point of each part.
void q_linear_concat(NodeContext& c) {
    c.require(
        c.input_count() >= 5 && (c.input_count() - 2) % 3 == 0,
        fmt::format("a scale and a zero point, then three inputs for each part are expected, and there are {} inputs",
                    c.input_count()));
    c.require(c.node.has("axis"), "attribute 'axis' is missing");
    c.require(c.has(1), "the zero point of the output (input 1) is missing");
    require_eight_bits(c, 1);
    std::vector<ValueId> parts;
    for (size_t k = 2; k < c.input_count(); k += 3) parts.push_back(real(c, k));
    c.out(0, requantised(c, c.b.concat(parts, c.node.attr_int("axis", 0)), 0, c.dtype(1)));
}

/// Inputs: condition, x, scale, zero point, y, scale, zero point, scale and zero point of the output.
void q_linear_where(NodeContext& c) {
    c.require(c.dtype(0) == DType::Bool, fmt::format("the condition should be bool, and is {}", to_string(c.dtype(0))));
    c.require(c.dtype(1) == c.dtype(4), fmt::format("both operands should have one type, and have {} and {}",
                                                    to_string(c.dtype(1)), to_string(c.dtype(4))));
    const ValueId x = real(c, 1), y = real(c, 4);
    c.out(0, requantised(c, c.b.select(c.in(0), x, y), 7, c.dtype(1)));
}

// --- integer products with float results

/// The second operand has one scale (and zero point), or one per column.
void require_columns(NodeContext& c, size_t input, Expr columns) {
    if (c.b.count(c.in(input)).is_constant(1)) return;
    const std::string misfit =
        fmt::format("input {} has shape {}, and one number or {} (one for each column) are expected", input,
                    to_string(c.shape(input)), columns.text());
    c.require(c.rank(input) >= 1, misfit);
    c.b.require_equal(c.shape(input).back(), columns, misfit);
    c.b.require_equal(c.b.count(c.in(input)), columns, misfit);
}

ValueId scalar_or_row(NodeContext& c, size_t input) {
    const ValueId v = c.in(input);
    return c.b.count(v).is_constant(1) ? c.b.reshape(v, {}) : c.b.reshape(v, {c.b.count(v)});
}

/// (a - a zero) (b - b zero) * a scale * b scale + bias. `b_scale`, `b_zero`, `bias`: inputs.
ValueId biased_product(NodeContext& c, ValueId a, ValueId a_scale, size_t b_scale, size_t b_zero, size_t bias) {
    require_eight_bits(c, 1);
    c.require(c.rank(1) >= 2,
              fmt::format("a matrix is expected as input 1, and its shape is {}", to_string(c.shape(1))));
    const Expr columns = c.shape(1).back();
    require_columns(c, b_scale, columns);
    c.require(c.dtype(b_scale) == DType::F32,
              fmt::format("input {} (a scale) should be f32, and is {}", b_scale, to_string(c.dtype(b_scale))));
    std::optional<ValueId> zero;
    if (c.has(b_zero)) {
        require_columns(c, b_zero, columns);
        c.require(c.dtype(b_zero) == c.dtype(1),
                  fmt::format("input {} (a zero point) should be {}, as input 1 is, and is {}", b_zero,
                              to_string(c.dtype(1)), to_string(c.dtype(b_zero))));
        zero = scalar_or_row(c, b_zero);
    }
    const ValueId y = scaled_product(c.b, a, a_scale, {c.in(1), scalar_or_row(c, b_scale), zero});
    if (!c.has(bias)) return y;
    c.require(c.dtype(bias) == DType::F32 && c.rank(bias) == 1, "the bias should be a vector of f32");
    c.b.require_equal(
        c.shape(bias)[0], columns,
        fmt::format("a bias of shape {} does not fit {} columns", to_string(c.shape(bias)), columns.text()));
    return c.b.binary(ScalarOp::Add, y, c.in(bias));
}

/// Inputs: a (f32), b, b scale, b zero point, bias.
void dynamic_quantize_matmul(NodeContext& c) {
    c.require(c.dtype(0) == DType::F32, fmt::format("input 0 should be f32, and is {}", to_string(c.dtype(0))));
    const DynamicallyQuantised a = dynamically_quantised(c.b, c.in(0));
    c.out(0, biased_product(c, centred(c.b, a.values, a.zero), a.scale, 2, 3, 4));
}

/// Inputs: a, b, a scale, b scale, a zero point, b zero point, bias.
void matmul_integer_to_float(NodeContext& c) {
    require_eight_bits(c, 0);
    const Quantisation q = scale_and_zero(c, 2, 4, c.dtype(0));
    c.out(0, biased_product(c, centred(c.b, c.in(0), q.zero), q.scale, 3, 5, 6));
}

/// Inputs: a, scale, zero point, b, scale, zero point, c (32 bits, with the products' scale), scale and zero point of
/// the output, which is f32 without them.
void q_gemm(NodeContext& c) {
    require_eight_bits(c, 0);
    require_eight_bits(c, 3);
    c.require(c.rank(0) == 2 && c.rank(3) == 2, fmt::format("two matrices are expected, and the shapes are {} and {}",
                                                            to_string(c.shape(0)), to_string(c.shape(3))));
    const bool transpose_b = c.node.attr_int("transB", 0) != 0;
    const Expr columns = c.shape(3)[transpose_b ? 0 : 1];
    require_columns(c, 4, columns);
    if (c.has(5)) require_columns(c, 5, columns);
    const Quantisation qa = quantisation(c, 1, c.dtype(0));
    const ValueId a = centred(c.b, c.in(0), qa.zero);
    std::optional<ValueId> zero;
    if (c.has(5)) zero = scalar_or_row(c, 5);
    const ValueId stored = transpose_b ? c.b.transpose(c.in(3), {1, 0}) : c.in(3);
    ValueId sum =
        c.b.matmul(c.node.attr_int("transA", 0) != 0 ? c.b.transpose(a, {1, 0}) : a, centred(c.b, stored, zero));
    if (c.has(6)) {
        const Dims s = c.shape(6), y = c.b.shape(sum);
        const std::string misfit = fmt::format("C of shape {} does not broadcast to {}", to_string(s), to_string(y));
        c.require(s.size() <= 2, misfit);
        for (size_t k = 0; k < s.size(); ++k) c.b.require_spread(s[k], y[2 - s.size() + k], misfit);
        sum = c.b.binary(ScalarOp::Add, sum, c.in(6));
    }
    const auto alpha = static_cast<double>(c.node.attr_float("alpha", 1));
    const ValueId y = c.b.map(
        {sum, qa.scale, scalar_or_row(c, 4)}, DType::F32,
        [&](ScalarBody& body, Ids v) -> ScalarId {
            return Sx(body, v[0]).cast(DType::F32) * (Sx(body, v[1]) * Sx(body, v[2]) * alpha);
        },
        "real");
    if (!c.has(7)) return c.out(0, y);
    c.out(0, requantised(c, y, 7, c.has(8) ? c.dtype(8) : c.dtype(0)));
}

}  // namespace

ValueId quantised_projection(NodeContext& c) {
    require_eight_bits(c, 0);
    const Quantisation q = scale_and_zero(c, 3, 6, c.dtype(0));
    return biased_product(c, centred(c.b, c.in(0), q.zero), q.scale, 4, 7, 2);
}

std::vector<OpLowering> contrib_quant_lowerings() {
    constexpr std::string_view kDomain = "com.microsoft";
    return {
        {kDomain, "DynamicQuantizeMatMul", 1, dynamic_quantize_matmul},
        {kDomain, "MatMulIntegerToFloat", 1, matmul_integer_to_float},
        {kDomain, "QGemm", 1, q_gemm},
        {kDomain, "QLinearAdd", 1, q_linear_binary<ScalarOp::Add>},
        {kDomain, "QLinearAveragePool", 1, q_linear_average_pool},
        {kDomain, "QLinearConcat", 1, q_linear_concat},
        {kDomain, "QLinearGlobalAveragePool", 1, q_linear_global_average_pool},
        {kDomain, "QLinearLeakyRelu", 1, q_linear_leaky_relu},
        {kDomain, "QLinearMul", 1, q_linear_binary<ScalarOp::Mul>},
        {kDomain, "QLinearSigmoid", 1, q_linear_sigmoid},
        {kDomain, "QLinearSoftmax", 1, q_linear_softmax},
        {kDomain, "QLinearWhere", 1, q_linear_where},
    };
}

}  // namespace tilewright
