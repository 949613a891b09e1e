// Quantisation: integers represent (q - zero point) * scale. Products of quantised tensors are sums of integers.
//
//     QLinearMatMul(a, b)   ->   s[m, n] = sum(k) (a[m, k] - za) * (b[k, n] - zb)        32-bit integers
//                                y = saturate(round(s * (sa * sb / sy)) + zy)

#include <cmath>

#include "base/error.h"
#include "ops/cast.h"
#include "ops/conv.h"
#include "ops/families.h"
#include "ops/quantised.h"
#include "ops/scalar_math.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

struct Limits {
    double lo, hi;
};

/// The smallest and largest number of an integer type of up to 32 bits.
Limits limits(DType t) {
    int bits = static_cast<int>(8 * byte_size(t));
    if (t == DType::I4 || t == DType::U4) bits = 4;
    if (t == DType::I2 || t == DType::U2) bits = 2;
    const double half = std::ldexp(1.0, bits - 1);
    return is_signed(t) ? Limits{-half, half - 1} : Limits{0, 2 * half - 1};
}

}  // namespace

ScalarId quantised(Sx x, std::optional<Sx> zero, DType to) {
    Sx y = x.round();
    if (zero) y = y + zero->cast(y.dtype());
    if (compute_type(to) == to) return y.cast(to);  // saturates
    const Limits l = limits(to);
    return y.max(l.lo).min(l.hi).cast(compute_type(to));
}

namespace {

/// The index of the scale (and zero point) of element (i0, i1, ...) of x: one for all, one per index along an axis, or
/// one per block along it.
///     x [2, 6], scale [2], axis 0   ->   [i0]        x [2, 6], scale [2, 3], axis 1, block_size 2   ->   [i0, i1 // 2]
std::vector<Expr> scale_index(NodeContext& c) {
    const Dims &x = c.shape(0), &s = c.shape(1);
    if (c.b.count(c.in(1)).is_constant(1) && s.size() <= 1) return std::vector<Expr>(s.size(), Expr(0));
    const auto along = static_cast<size_t>(c.axis_attr("axis", 1, x.size()));
    if (s.size() == 1) {
        c.b.require_equal(
            s[0], x[along],
            fmt::format("{} scales do not fit axis {} of an input of shape {}", s[0].text(), along, to_string(x)));
        return {axis(along)};
    }
    const int64_t block = c.node.attr_int("block_size", 0);
    c.require(s.size() == x.size() && block > 0,
              fmt::format("scales of shape {} in blocks of {} do not fit an input of shape {}", to_string(s), block,
                          to_string(x)));
    std::vector<Expr> index;
    for (size_t k = 0; k < s.size(); ++k) {
        c.b.require_equal(
            s[k], k == along ? ceil_div(x[k], block) : x[k],
            fmt::format("scales of shape {} in blocks of {} along axis {} do not fit an input of shape {}",
                        to_string(s), block, along, to_string(x)));
        index.push_back(k == along ? floor_div(axis(k), block) : axis(k));
    }
    return index;
}

/// An expression over x, its scale and optionally its zero point (accesses 0, 1, 2).
TensorExpr scaled_expression(NodeContext& c) {
    TensorExpr e;
    e.extents = c.shape(0);
    e.spatial = e.extents.size();
    std::vector<Expr> own;
    for (size_t k = 0; k < e.spatial; ++k) own.push_back(axis(k));
    const std::vector<Expr> where = scale_index(c);
    e.accesses = {{c.in(0), own, {}, 0}, {c.in(1), where, {}, 0}};
    if (c.has(2)) {
        const std::string misfit = fmt::format("zero points of shape {} do not fit scales of shape {}",
                                               to_string(c.shape(2)), to_string(c.shape(1)));
        const bool same = c.rank(2) == where.size();
        c.require(same || c.b.count(c.in(2)).is_constant(1), misfit);
        for (size_t k = 0; k < where.size() && same; ++k) c.b.require_equal(c.shape(2)[k], c.shape(1)[k], misfit);
        e.accesses.push_back({c.in(2), same ? where : std::vector<Expr>(c.rank(2), Expr(0)), {}, 0});
    }
    return e;
}

Sx operand(NodeContext& c, TensorExpr& e, uint32_t slot) { return {e.body, e.body.access(slot, c.dtype(slot))}; }

/// The compute type of a division or product by the scale: double only if an operand is.
DType real_type(DType a, DType b) { return a == DType::F64 || b == DType::F64 ? DType::F64 : DType::F32; }

void quantize_linear(NodeContext& c) {
    c.require(is_float(c.dtype(1)), fmt::format("the scale should be a float, and is {}", to_string(c.dtype(1))));
    const DType to = c.has(2) ? c.dtype(2) : c.dtype_attr("output_dtype").value_or(DType::U8);
    c.require(is_float(to) ? byte_size(to) == 1 : is_integer(to) && byte_size(to) <= 2,
              fmt::format("the quantised type should be an integer of at most 16 bits or a float of 8 bits, and is {}",
                          to_string(to)));
    const DType t = real_type(c.dtype(0), c.dtype(1));
    TensorExpr e = scaled_expression(c);
    // The ratio is a separate value: it is rounded to a float before it is rounded to an integer.
    std::optional<Access> zero;
    if (c.has(2)) {
        zero = e.accesses.back();
        e.accesses.pop_back();
    }
    e.body.set_root(operand(c, e, 0).cast(t) / operand(c, e, 1).cast(t));
    const ValueId ratio = c.b.emit(std::move(e), t, "ratio");
    TensorExpr q;
    q.extents = c.shape(0);
    q.spatial = q.extents.size();
    Access own{ratio, {}, {}, 0};
    for (size_t k = 0; k < q.spatial; ++k) own.index.push_back(axis(k));
    q.accesses = {std::move(own)};
    const Sx x(q.body, q.body.access(0, t));
    std::optional<Sx> z;
    if (zero) {
        q.accesses.push_back(*zero);
        z = Sx(q.body, q.body.access(1, to));
    }
    if (is_float(to)) {
        q.body.set_root(z ? x + z->cast(t) : x);
        return c.out(0, small_float_cast(c, c.b.emit(std::move(q), t, "shifted"), to));
    }
    q.body.set_root(quantised(x, z, to));
    c.out(0, c.b.emit(std::move(q), to, "quantised"));
}

void dequantize_linear(NodeContext& c) {
    c.require(is_float(c.dtype(1)), fmt::format("the scale should be a float, and is {}", to_string(c.dtype(1))));
    const DType from = c.dtype(0), to = c.dtype_attr("output_dtype").value_or(c.dtype(1));
    const DType t = real_type(to, c.dtype(1));
    // Differences of integers are exact in 32 bits.
    const DType exact = is_float(from) ? t : DType::I32;
    TensorExpr e = scaled_expression(c);
    Sx x = operand(c, e, 0).cast(exact);
    if (c.has(2)) x = x - operand(c, e, 2).cast(exact);
    e.body.set_root((x.cast(t) * operand(c, e, 1).cast(t)).cast(compute_type(to)));
    c.out(0, c.b.emit(std::move(e), to, "real"));
}

}  // namespace

DynamicallyQuantised dynamically_quantised(Builder& b, ValueId x) {
    std::vector<int64_t> axes;
    for (size_t k = 0; k < b.rank(x); ++k) axes.push_back(static_cast<int64_t>(k));
    const auto extreme = [&](Reducer r) { return axes.empty() ? x : b.reduce(r, x, axes, false, to_string(r)); };
    const ValueId lowest = extreme(Reducer::Min), highest = extreme(Reducer::Max);
    const ValueId scale = b.map(
        {lowest, highest}, DType::F32,
        [](ScalarBody& body, Ids v) -> ScalarId {
            const Sx range = Sx(body, v[1]).max(0.0) - Sx(body, v[0]).min(0.0), s = range / 255.0;
            return s.apply(ScalarOp::Eq, 0.0).choose(s.of(1), s);  // all zeros: any scale is valid
        },
        "scale");
    const ValueId zero = b.map(
        {lowest, scale}, DType::U8,
        [](ScalarBody& body, Ids v) -> ScalarId {
            const Sx first = Sx(body, v[0]).min(0.0);
            return quantised((first.of(0) - first) / Sx(body, v[1]), {}, DType::U8);
        },
        "zero");
    const ValueId values = b.map(
        {b.binary(ScalarOp::Div, x, scale), zero}, DType::U8,
        [](ScalarBody& body, Ids v) -> ScalarId { return quantised(Sx(body, v[0]), Sx(body, v[1]), DType::U8); },
        "quantised");
    return {values, scale, zero};
}

ValueId centred(Builder& b, ValueId x, std::optional<ValueId> zero) {
    if (!zero) return b.cast(x, DType::I32);
    return b.map(
        {x, *zero}, DType::I32,
        [](ScalarBody& body, Ids v) -> ScalarId {
            return Sx(body, v[0]).cast(DType::I32) - Sx(body, v[1]).cast(DType::I32);
        },
        "centred");
}

ValueId scaled_product(Builder& b, ValueId x, ValueId x_scale, const QuantisedMatrix& weights) {
    return b.map(
        {b.matmul(x, centred(b, weights.values, weights.zero)), x_scale, weights.scale}, DType::F32,
        [](ScalarBody& body, Ids v) -> ScalarId {
            return Sx(body, v[0]).cast(DType::F32) * (Sx(body, v[1]) * Sx(body, v[2]));
        },
        "real");
}

ValueId dynamic_product(Builder& b, ValueId x, const QuantisedMatrix& weights) {
    const DynamicallyQuantised q = dynamically_quantised(b, x);
    return scaled_product(b, centred(b, q.values, q.zero), q.scale, weights);
}

namespace {

void dynamic_quantize_linear(NodeContext& c) {
    c.require(c.dtype(0) == DType::F32, fmt::format("the input should be f32, and is {}", to_string(c.dtype(0))));
    const DynamicallyQuantised q = dynamically_quantised(c.b, c.in(0));
    if (c.uses_output(0)) c.out(0, q.values);
    if (c.uses_output(1)) c.out(1, q.scale);
    if (c.uses_output(2)) c.out(2, q.zero);
}

// --- products

/// A vector with one number per index along a dimension, `after` dimensions before the last; scalars are unchanged.
///     [M], 1   ->   [M, 1]
ValueId along(NodeContext& c, ValueId v, size_t after) {
    if (c.b.rank(v) != 1 || after == 0) return v;
    if (c.b.shape(v)[0].is_constant(1)) return c.b.reshape(v, {});
    Dims shape(after + 1, Expr(1));
    shape[0] = c.b.shape(v)[0];
    return c.b.reshape(v, std::move(shape));
}

std::optional<ValueId> zero_point(NodeContext& c, size_t input, size_t after) {
    return c.has(input) ? std::optional(along(c, c.in(input), after)) : std::nullopt;
}

/// saturate(round(sum * (x scale * w scale / y scale)) + y zero)
ValueId requantised(NodeContext& c, ValueId sum, ValueId x_scale, ValueId w_scale, size_t y_scale) {
    const ValueId factor = c.b.map(
        {x_scale, w_scale, along(c, c.in(y_scale), 1)}, DType::F32,
        [](ScalarBody& body, Ids v) -> ScalarId {
            return Sx(body, v[0]).cast(DType::F32) * Sx(body, v[1]).cast(DType::F32) / Sx(body, v[2]).cast(DType::F32);
        },
        "factor");
    const DType to = c.dtype(y_scale + 1);
    return c.b.map(
        {sum, factor, along(c, c.in(y_scale + 1), 1)}, to,
        [&](ScalarBody& body, Ids v) -> ScalarId {
            return quantised(Sx(body, v[0]).cast(DType::F32) * Sx(body, v[1]), Sx(body, v[2]), to);
        },
        "quantised");
}

void matmul_integer(NodeContext& c) {
    const ValueId a = centred(c.b, c.in(0), zero_point(c, 2, 1)), b = centred(c.b, c.in(1), zero_point(c, 3, 0));
    c.out(0, c.b.matmul(a, b));
}

/// Inputs: a, scale, zero point, b, scale, zero point, scale and zero point of the output.
void q_linear_matmul(NodeContext& c) {
    const ValueId a = centred(c.b, c.in(0), zero_point(c, 2, 1)), b = centred(c.b, c.in(3), zero_point(c, 5, 0));
    c.out(0, requantised(c, c.b.matmul(a, b), along(c, c.in(1), 1), c.in(4), 6));
}

/// The padding is the zero point: 0 after it is subtracted.
void conv_integer(NodeContext& c) {
    const size_t inside = c.rank(1) == 0 ? 0 : c.rank(1) - 1;
    const ValueId x = centred(c.b, c.in(0), zero_point(c, 2, 1)), w = centred(c.b, c.in(1), zero_point(c, 3, inside));
    c.out(0, convolution(c, x, w));
}

/// Inputs: x, scale, zero point, w, scale, zero point (one each or one per channel), scale and zero point of the
/// output, bias in 32 bits with the products' scale. `data` [n, c, spatial...]: x, or x in another order.
ValueId q_linear_convolution(NodeContext& c, ValueId data) {
    const size_t inside = c.rank(3) == 0 ? 0 : c.rank(3) - 1;
    const ValueId x = centred(c.b, data, zero_point(c, 2, 1)), w = centred(c.b, c.in(3), zero_point(c, 5, inside));
    ValueId sum = convolution(c, x, w);
    const size_t behind = inside == 0 ? 0 : inside - 1;  // dimensions after the channel
    if (c.has(8)) {
        c.require(c.dtype(8) == DType::I32 && c.rank(8) == 1, "the bias must be a vector of 32-bit integers");
        Dims shape(behind + 1, Expr(1));
        shape[0] = c.shape(8)[0];
        sum = c.b.binary(ScalarOp::Add, sum, c.b.reshape(c.in(8), std::move(shape)));
    }
    return requantised(c, sum, along(c, c.in(1), 1), along(c, c.in(4), behind), 6);
}

void q_linear_conv(NodeContext& c) { c.out(0, q_linear_convolution(c, c.in(0))); }

/// Of com.microsoft: with `channels_last` data and result are [n, spatial..., c].
void contrib_q_linear_conv(NodeContext& c) {
    if (c.node.attr_int("channels_last", 0) == 0) return q_linear_conv(c);
    c.out(0, channels_last(c, q_linear_convolution(c, channels_first(c, c.in(0)))));
}

}  // namespace

std::vector<OpLowering> quant_lowerings() {
    return {
        {"", "ConvInteger", 10, conv_integer},
        {"", "DequantizeLinear", 10, dequantize_linear},
        {"", "DynamicQuantizeLinear", 11, dynamic_quantize_linear},
        {"", "MatMulInteger", 10, matmul_integer},
        {"", "QLinearConv", 10, q_linear_conv},
        {"", "QLinearMatMul", 10, q_linear_matmul},
        {"", "QuantizeLinear", 10, quantize_linear},
        // As ONNX Runtime's quantiser writes them for 16 bits in opsets before 21.
        {"com.microsoft", "DequantizeLinear", 1, dequantize_linear},
        {"com.microsoft", "QLinearConv", 1, contrib_q_linear_conv},
        {"com.microsoft", "QuantizeLinear", 1, quantize_linear},
    };
}

}  // namespace tilewright
