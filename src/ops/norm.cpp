// Normalisations, as means, squares and square roots.

#include <algorithm>

#include "base/error.h"
#include "ops/families.h"
#include "ops/norm.h"
#include "ops/scalar_math.h"
#include "ops/window.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

/// The type in which the statistics are computed (attribute stash_type): half-precision inputs are widened.
DType stash_type(const NodeContext& c) {
    const DType t = c.dtype(0);
    c.require(is_float(t), fmt::format("a floating-point input is expected, and its type is {}", to_string(t)));
    return c.dtype_attr("stash_type").value_or(DType::F32) == DType::F64 ? DType::F64 : compute_type(t);
}

/// One number per channel against [n, channel, ...].    [c] -> [c, 1, 1]
ValueId per_channel(NodeContext& c, ValueId v, size_t rank) {
    Dims shape(rank - 1, Expr(1));
    c.require(c.b.rank(v) == 1,
              fmt::format("one number per channel is expected, and the shape is {}", to_string(c.b.shape(v))));
    const Expr channels = c.shape(0)[1];
    c.b.require_equal(c.b.shape(v)[0], channels,
                      fmt::format("{} numbers are given for {} channels", c.b.shape(v)[0].text(), channels.text()),
                      "channels");
    shape[0] = c.b.shape(v)[0];
    return c.b.reshape(v, std::move(shape));
}

/// v * scale + shift
ValueId affine(Builder& b, ValueId v, ValueId scale, ValueId shift, DType out) {
    return b.map(
        {v, scale, shift}, out,
        [&](ScalarBody& body, Ids x) -> ScalarId {
            const DType t = compute_type(out);
            return Sx(body, x[0]).cast(t) * Sx(body, x[1]).cast(t) + Sx(body, x[2]).cast(t);
        },
        "affine");
}

// --- BatchNormalization

/// a * momentum + b * (1 - momentum)
ValueId running(Builder& b, ValueId old, ValueId now, double momentum) {
    return b.map(
        {old, now}, b.dtype(old),
        [&](ScalarBody& body, Ids x) -> ScalarId {
            const DType t = compute_type(b.dtype(old));
            return Sx(body, x[0]).cast(t) * momentum + Sx(body, x[1]).cast(t) * (1 - momentum);
        },
        "running");
}

bool in_training(const NodeContext& c) {
    if (c.node.opset >= 14) return c.node.attr_int("training_mode", 0) != 0;
    if (c.node.opset >= 7) return c.uses_output(1) || c.uses_output(2);
    return c.node.attr_int("is_test", 0) == 0 && (c.uses_output(1) || c.uses_output(2));
}

/// y = x * s + (bias - mean * s)   with s = scale / sqrt(variance + epsilon). With constant statistics, s and the
/// parenthesised sum fold.
void batch_normalization(NodeContext& c) {
    const size_t r = c.rank(0);
    c.require(r >= 2,
              fmt::format("an input of rank 2 or more is expected, and its shape is {}", to_string(c.shape(0))));
    const double epsilon = static_cast<double>(c.node.attr_float("epsilon", 1e-5f));
    const bool per_element = c.node.opset < 9 && c.node.attr_int("spatial", 1) == 0;  // statistics of [channel, ...]
    const auto spread = [&](ValueId v) { return per_element ? v : per_channel(c, v, r); };
    const DType t = c.dtype(0), wide = compute_type(t);
    ValueId mean = c.in(3), variance = c.in(4);
    if (in_training(c)) {
        std::vector<int64_t> axes = {0};
        if (!per_element)
            for (size_t k = 2; k < r; ++k) axes.push_back(static_cast<int64_t>(k));
        const ValueId x = c.b.cast(c.in(0), wide);
        const ValueId m = c.b.mean(x, axes, true), d = c.b.binary(ScalarOp::Sub, x, m);
        const ValueId v = c.b.mean(c.b.binary(ScalarOp::Mul, d, d), axes, true);
        const ValueId old_mean = mean, old_variance = variance;
        mean = c.b.cast(c.b.squeeze(m, axes), c.b.dtype(old_mean));
        variance = c.b.cast(c.b.squeeze(v, axes), c.b.dtype(old_variance));
        const double momentum = static_cast<double>(c.node.attr_float("momentum", 0.9f));
        c.out(1, running(c.b, old_mean, mean, momentum));
        c.out(2, running(c.b, old_variance, variance, momentum));
        if (c.node.opset < 14) {
            c.out(3, c.uses_output(3) ? c.b.copy(mean, "saved") : mean);
            c.out(4, c.uses_output(4) ? c.b.copy(variance, "saved") : variance);
        }
    }
    // The factors are kept in the widest of the types involved.
    const DType factors = c.b.dtype(variance) == DType::F64 || t == DType::F64 ? DType::F64 : DType::F32;
    const auto as = [&](ScalarBody& body, ScalarId x) { return Sx(body, x).cast(factors); };
    const ValueId scale = c.b.map(
        {c.in(1), variance}, factors,
        [&](ScalarBody& body, Ids x) -> ScalarId { return as(body, x[0]) / (as(body, x[1]) + epsilon).sqrt(); },
        "scale");
    const ValueId shift = c.b.map(
        {c.in(2), mean, scale}, factors,
        [&](ScalarBody& body, Ids x) -> ScalarId { return as(body, x[0]) - as(body, x[1]) * as(body, x[2]); }, "shift");
    c.out(0, affine(c.b, c.in(0), spread(scale), spread(shift), t));
}

// --- InstanceNormalization, GroupNormalization

void instance_normalization(NodeContext& c) {
    const size_t r = c.rank(0);
    c.require(r >= 3,
              fmt::format("an input of rank 3 or more is expected, and its shape is {}", to_string(c.shape(0))));
    const DType wide = compute_type(c.dtype(0));
    const double epsilon = static_cast<double>(c.node.attr_float("epsilon", 1e-5f));
    const ValueId y = normalize(c.b, c.b.cast(c.in(0), wide), axis_range(2, r), epsilon).value;
    c.out(0, affine(c.b, y, per_channel(c, c.in(1), r), per_channel(c, c.in(2), r), c.dtype(0)));
}

/// Statistics over the channels of a group: [n, c, h, w] viewed as [n, groups, c / groups, h, w].
void group_normalization(NodeContext& c) {
    const Dims x = c.shape(0);
    c.require(x.size() >= 2, fmt::format("an input of rank 2 or more is expected, and its shape is {}", to_string(x)));
    const int64_t groups = c.node.attr_int("num_groups", 0);
    c.require(groups >= 1, fmt::format("attribute 'num_groups' should be positive, and is {}", groups));
    c.b.require_multiple(x[1], groups, fmt::format("{} channels do not divide into {} groups", x[1].text(), groups),
                         "channels");
    const bool per_group = c.node.opset < 21;
    Dims split = {x[0], groups, floor_div(x[1], groups)};
    split.insert(split.end(), x.begin() + 2, x.end());
    const double epsilon = static_cast<double>(c.node.attr_float("epsilon", 1e-5f));
    const ValueId wide = c.b.cast(c.in(0), stash_type(c));
    const ValueId y = normalize(c.b, c.b.reshape(wide, split), axis_range(2, split.size()), epsilon).value;
    const auto factor = [&](size_t input) {
        Dims shape(split.size() - 1, Expr(1));
        shape[0] = groups;
        if (!per_group) shape[1] = split[2];
        const Expr expected = per_group ? Expr(groups) : x[1], given = c.b.count(c.in(input));
        const std::string misfit = fmt::format("scale and bias should have shape [{}], and one has {}", expected.text(),
                                               to_string(c.shape(input)));
        c.require(c.rank(input) == 1, misfit);
        c.b.require_equal(given, expected, misfit, "channels");
        return c.b.reshape(c.in(input), std::move(shape));
    };
    c.out(0, c.b.reshape(affine(c.b, y, factor(1), factor(2), c.dtype(0)), x));
}

// --- LayerNormalization, RMSNormalization

void require_scale(const NodeContext& c, size_t input) {
    const Dims s = c.shape(input), x = c.shape(0);
    const std::string misfit =
        fmt::format("input {} of shape {} does not broadcast to {}", input, to_string(s), to_string(x));
    c.require(s.size() <= x.size(), misfit);
    for (size_t k = 0; k < s.size(); ++k) c.b.require_spread(s[k], x[x.size() - s.size() + k], misfit);
}

void layer_normalization(NodeContext& c) {
    const size_t r = c.rank(0);
    const auto first = static_cast<size_t>(c.axis_attr("axis", -1, r));
    const DType t = c.dtype(0), wide = stash_type(c);
    const double epsilon = static_cast<double>(c.node.attr_float("epsilon", 1e-5f));
    const Normalized n = normalize(c.b, c.b.cast(c.in(0), wide), axis_range(first, r), epsilon);
    require_scale(c, 1);
    ValueId y = c.b.binary(ScalarOp::Mul, c.b.cast(n.value, t), c.in(1));
    if (c.has(2)) {
        require_scale(c, 2);
        y = c.b.binary(ScalarOp::Add, y, c.in(2));
    }
    c.out(0, y);
    c.out(1, n.mean);
    c.out(2, n.inverse_deviation);
}

void rms_normalization(NodeContext& c) {
    const size_t r = c.rank(0);
    const auto first = static_cast<size_t>(c.axis_attr("axis", -1, r));
    const DType t = c.dtype(0), wide = stash_type(c);
    const double epsilon = static_cast<double>(c.node.attr_float("epsilon", 1e-5f));
    const ValueId x = c.b.cast(c.in(0), wide);
    const ValueId squares = c.b.mean(c.b.binary(ScalarOp::Mul, x, x), axis_range(first, r), true);
    const ValueId inverse = inverse_root(c.b, squares, epsilon);
    const ValueId y = c.b.binary(ScalarOp::Mul, x, inverse);
    require_scale(c, 1);
    c.require(is_float(c.dtype(1)), fmt::format("the scale should be a float, and is {}", to_string(c.dtype(1))));
    c.out(1, inverse);  // for SimplifiedLayerNormalization
    c.out(0, c.b.map(
                 {c.b.cast(y, t), c.in(1)}, c.dtype(1),
                 [&](ScalarBody& body, Ids v) -> ScalarId {
                     const DType out = compute_type(c.dtype(1));
                     return Sx(body, v[0]).cast(out) * Sx(body, v[1]).cast(out);
                 },
                 "scale"));
}

// --- LpNormalization, MeanVarianceNormalization, LRN

/// x / (sum |x|^p)^(1/p); a zero vector is unchanged.
void lp_normalization(NodeContext& c) {
    const int64_t p = c.node.attr_int("p", 2);
    c.require(p == 1 || p == 2, fmt::format("attribute 'p' should be 1 or 2, and is {}", p));
    const int64_t axis = c.axis_attr("axis", -1, c.rank(0));
    const DType t = c.dtype(0), wide = compute_type(t);
    c.require(is_float(t), fmt::format("a floating-point input is expected, and its type is {}", to_string(t)));
    const ValueId sum = c.b.reduce_map(
        Reducer::Sum, {c.in(0)}, wide,
        [&](ScalarBody& body, Ids x) -> ScalarId {
            const Sx a(body, x[0]);
            return p == 1 ? a.abs() : a * a;
        },
        {axis}, true, "powers");
    const ValueId norm = p == 1 ? sum : c.b.unary(ScalarOp::Sqrt, sum);
    c.out(0, c.b.map(
                 {c.in(0), norm}, t,
                 [](ScalarBody& body, Ids x) -> ScalarId {
                     const Sx a(body, x[0]), n(body, x[1]);
                     return n.apply(ScalarOp::Eq, 0).choose(a.of(0), a / n);
                 },
                 "quotient"));
}

/// (x - mean) / (deviation + 1e-9), over batch and space unless `axes` (since opset 9) is given.
void mean_variance_normalization(NodeContext& c) {
    const size_t r = c.rank(0);
    std::vector<int64_t> axes = c.node.attr_ints("axes", {0, 2, 3});
    if (c.node.opset < 9) {
        const bool across = c.node.attr_int("across_channels", 0) != 0;
        axes = axis_range(across ? 1 : 2, r);
    }
    const DType wide = compute_type(c.dtype(0));
    const ValueId x = c.b.cast(c.in(0), wide);
    const ValueId d = c.b.binary(ScalarOp::Sub, x, c.b.mean(x, axes, true));
    if (c.node.opset < 9 && c.node.attr_int("normalize_variance", 1) == 0) return c.out(0, c.b.cast(d, c.dtype(0)));
    const ValueId variance = c.b.mean(c.b.binary(ScalarOp::Mul, d, d), axes, true);
    c.out(0, c.b.map(
                 {d, variance}, c.dtype(0),
                 [](ScalarBody& body, Ids v) -> ScalarId { return Sx(body, v[0]) / (Sx(body, v[1]).sqrt() + 1e-9); },
                 "quotient"));
}

/// x / (bias + alpha / size * sum of x^2 over the `size` channels around)^beta
void lrn(NodeContext& c) {
    const Dims x = c.shape(0);
    c.require(x.size() >= 2, fmt::format("an input of rank 2 or more is expected, and its shape is {}", to_string(x)));
    const int64_t size = c.node.attr_int("size", 0);
    c.require(size >= 1, fmt::format("attribute 'size' should be positive, and is {}", size));
    const double alpha = static_cast<double>(c.node.attr_float("alpha", 1e-4f));
    const double beta = static_cast<double>(c.node.attr_float("beta", 0.75f));
    const double bias = static_cast<double>(c.node.attr_float("bias", 1.0f));
    const DType t = c.dtype(0);
    TensorExpr e;
    e.extents = x;
    e.spatial = x.size();
    // If the window is larger than the channels, only the taps that can be in bounds.
    const int64_t before = (size - 1) / 2;
    int64_t first = 0, taps = size;
    if (x[1].is_constant()) {
        first = std::max<int64_t>(0, before - (x[1].constant() - 1));
        taps = std::max<int64_t>(0, std::min(size, before + x[1].constant()) - first);
    }
    e.extents.emplace_back(taps);
    e.reducer = Reducer::Sum;
    Access a{c.in(0), {}, {}, 0};
    for (size_t k = 0; k < x.size(); ++k) a.index.push_back(axis(k));
    a.index[1] = axis(1) + axis(x.size()) + (first - before);
    a.valid = {a.index[1], x[1] - 1 - a.index[1]};
    e.accesses = {std::move(a)};
    const Sx v(e.body, e.body.access(0, t));
    e.body.set_root(v * v);
    const ValueId squares = c.b.emit(std::move(e), compute_type(t), "squares");
    c.out(0, c.b.map(
                 {c.in(0), squares}, t,
                 [&](ScalarBody& body, Ids v2) -> ScalarId {
                     const Sx sum(body, v2[1]);
                     const Sx base = sum * (alpha / static_cast<double>(size)) + bias;
                     return Sx(body, v2[0]) / base.apply(ScalarOp::Pow, beta);
                 },
                 "quotient"));
}

}  // namespace

ValueId inverse_root(Builder& b, ValueId v, double epsilon) {
    return b.map(
        {v}, b.dtype(v),
        [&](ScalarBody& body, Ids x) -> ScalarId {
            const Sx a(body, x[0]);
            return a.of(1) / (a + epsilon).sqrt();
        },
        "inverse");
}

Normalized normalize(Builder& b, ValueId x, const std::vector<int64_t>& axes, double epsilon) {
    Normalized n;
    n.mean = b.mean(x, axes, true);
    const ValueId d = b.binary(ScalarOp::Sub, x, n.mean);
    const ValueId variance = b.mean(b.binary(ScalarOp::Mul, d, d), axes, true);
    n.inverse_deviation = inverse_root(b, variance, epsilon);
    n.value = b.binary(ScalarOp::Mul, d, n.inverse_deviation);
    return n;
}

std::vector<OpLowering> norm_lowerings() {
    return {
        {"", "BatchNormalization", 1, batch_normalization},
        {"", "GroupNormalization", 18, group_normalization},
        {"", "InstanceNormalization", 1, instance_normalization},
        {"", "LRN", 1, lrn},
        // From opset 17; models optimised by ONNX Runtime use it and SimplifiedLayerNormalization in any opset.
        {"", "LayerNormalization", 1, layer_normalization},
        {"", "LpNormalization", 1, lp_normalization},
        {"", "MeanVarianceNormalization", 1, mean_variance_normalization},
        {"", "RMSNormalization", 23, rms_normalization},
        {"", "SimplifiedLayerNormalization", 1, rms_normalization},
        {"com.microsoft", "SimplifiedLayerNormalization", 1, rms_normalization},
    };
}

}  // namespace tilewright
