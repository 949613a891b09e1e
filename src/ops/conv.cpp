// Convolutions: one expression, a sum of products of two accesses; padding is a condition of the first.
//
//     Conv(x[n, c, h, w], w[o, c, 3, 3]), pads 1   ->
//         y[i0, i1, i2, i3] = sum(c, kh, kw) mul(@0, @1)   where @0 = x[i0, c, i2 + kh - 1, i3 + kw - 1] if inside,
//                                                                @1 = w[i1, c, kh, kw]

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "ops/conv.h"
#include "ops/families.h"
#include "ops/scalar_math.h"
#include "ops/window.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

std::vector<int64_t> kernel_dims(const NodeContext& c, const Dims& weights) {
    std::vector<int64_t> kernel;
    for (size_t k = 2; k < weights.size(); ++k) {
        if (!weights[k].is_constant())
            c.unsupported(
                fmt::format("the kernel's size must be known, and the weights have shape {}", to_string(weights)));
        kernel.push_back(weights[k].constant());
    }
    const std::vector<int64_t> declared = c.node.attr_ints("kernel_shape", kernel);
    c.require(declared == kernel, fmt::format("attribute 'kernel_shape' is {}, and the weights have shape {}",
                                              to_string(std::span(declared)), to_string(weights)));
    return kernel;
}

/// x [n, g * ci, spatial...] with w [g * oi, ci, kernel...]   ->   [n, g * oi, out...]
ValueId convolve(NodeContext& c, ValueId x, ValueId w, int64_t groups, const std::vector<WindowAxis>& windows) {
    const Dims xs = c.b.shape(x), ws = c.b.shape(w);
    const Expr per_group = ws[1];
    const DType storage = c.b.dtype(x), t = compute_type(storage);
    const bool depthwise = groups > 1 && per_group.is_constant(1) && ws[0].is_constant(groups);
    const bool grouped = groups > 1 && !depthwise;
    const Expr outs = grouped ? floor_div(ws[0], groups) : ws[0];

    TensorExpr e;
    e.extents = {xs[0]};
    if (grouped) e.extents.emplace_back(groups);
    const Expr group = grouped ? axis(1) : Expr(0);
    const Expr out_channel = axis(e.extents.size());
    e.extents.push_back(outs);
    const size_t first_out = e.extents.size();
    for (const WindowAxis& win : windows) e.extents.push_back(win.out);
    e.spatial = e.extents.size();
    Expr channel = 0;
    if (!depthwise) {
        channel = axis(e.extents.size());
        e.extents.push_back(per_group);
    }
    const std::vector<Expr> taps = add_kernel_axes(e.extents, windows);
    e.reducer = e.extents.size() > e.spatial ? Reducer::Sum : Reducer::None;

    const Expr read_channel = depthwise ? out_channel : group * per_group + channel;
    Access weights{w, {group * outs + out_channel, channel}, {}, 0};
    weights.index.insert(weights.index.end(), taps.begin(), taps.end());
    e.accesses = {window_access(x, {axis(0), read_channel}, windows, first_out, taps, 0), std::move(weights)};
    e.body.set_root(e.body.binary(ScalarOp::Mul, e.body.cast(t, e.body.access(0, storage)),
                                  e.body.cast(t, e.body.access(1, c.b.dtype(w)))));
    const ValueId y = c.b.emit(std::move(e), storage, "products");
    if (!grouped) return y;
    Dims flat = {xs[0], ws[0]};
    for (const WindowAxis& win : windows) flat.push_back(win.out);
    return c.b.reshape(y, std::move(flat));
}

/// y + bias[channel], where the channel is dimension 1.
ValueId add_bias(NodeContext& c, ValueId y, size_t input) {
    if (!c.has(input)) return y;
    const Dims& s = c.shape(input);
    const std::string misfit =
        fmt::format("the bias has shape {}, and there are {} output channels", to_string(s), c.b.shape(y)[1].text());
    c.require(s.size() == 1, misfit);
    c.b.require_equal(s[0], c.b.shape(y)[1], misfit, "channels");
    Dims bias(c.b.rank(y) - 1, Expr(1));
    bias[0] = s[0];
    return c.b.binary(ScalarOp::Add, y, c.b.cast(c.b.reshape(c.in(input), std::move(bias)), c.b.dtype(y)));
}

void require_ranks(const NodeContext& c, const Dims& x, const Dims& w) {
    c.require(x.size() >= 3 && x.size() == w.size(),
              fmt::format("input and weights should have one rank of 3 or more, and have shapes {} and {}",
                          to_string(x), to_string(w)));
}

void require_images(const NodeContext& c, const Dims& x, const Dims& w) {
    require_ranks(c, x, w);
    c.require(c.dtype(0) == c.dtype(1),
              fmt::format("the input has type {} and the weights {}", to_string(c.dtype(0)), to_string(c.dtype(1))));
    c.require(is_float(c.dtype(0)),
              fmt::format("a floating-point input is expected, and its type is {}", to_string(c.dtype(0))));
}

int64_t group_attr(const NodeContext& c) {
    const int64_t groups = c.node.attr_int("group", 1);
    c.require(groups >= 1, fmt::format("attribute 'group' should be positive, and is {}", groups));
    return groups;
}

void conv(NodeContext& c) { c.out(0, biased_convolution(c, c.in(0))); }

// --- ConvTranspose

/// One axis: out[y] = sum of x[i] * w[k] over i * stride + k * dilation = y + before. With y + before = q * stride + r
/// only the taps k * dilation = r + t * stride contribute, with i = q - t: a convolution of stride 1 over q, whose
/// kernel is every stride-th element of w, for each of `stride` residues r. The residues become output channels, which
/// are interleaved into the axis afterwards.
struct TransposedAxis {
    Expr in, out, before;
    int64_t kernel = 1, stride = 1, dilation = 1;
    WindowAxis window;  ///< over q
    Expr first;         ///< q of window element 0

    int64_t reach() const { return (kernel - 1) * dilation + 1; }
};

/// Taps of a dilated kernel that a phase may have, most of which are zeros.
constexpr int64_t kMostTaps = 4096;

std::vector<TransposedAxis> transposed_axes(const NodeContext& c, const Dims& in, const std::vector<int64_t>& kernel) {
    const size_t n = in.size();
    const std::vector<int64_t> strides = positive_ints(c, "strides", n), dilations = positive_ints(c, "dilations", n);
    std::vector<int64_t> extra = c.node.attr_ints("output_padding", {}),
                         requested = c.node.attr_ints("output_shape", {});
    if (extra.empty()) extra.assign(n, 0);
    if (requested.size() == n + 2) requested.erase(requested.begin(), requested.begin() + 2);
    c.require(extra.size() == n, fmt::format("attribute 'output_padding' has {} numbers, and there are {} spatial "
                                             "dimensions",
                                             extra.size(), n));
    c.require(requested.empty() || requested.size() == n,
              fmt::format("attribute 'output_shape' has {} numbers, and there are {} spatial dimensions",
                          requested.size(), n));
    const AutoPad mode = auto_pad(c);
    const std::vector<int64_t> pads = mode == AutoPad::Explicit ? window_pads(c, n) : std::vector<int64_t>(2 * n, 0);
    std::vector<TransposedAxis> axes;
    for (size_t k = 0; k < n; ++k) {
        TransposedAxis a;
        a.in = in[k];
        a.kernel = kernel[k];
        a.stride = strides[k];
        a.dilation = dilations[k];
        c.require(extra[k] >= 0, fmt::format("attribute 'output_padding' holds {}", extra[k]));
        const Expr whole = (a.in - 1) * a.stride + extra[k] + a.reach();
        const bool same = mode == AutoPad::SameUpper || mode == AutoPad::SameLower;
        if (!requested.empty() || same) {
            a.out = requested.empty() ? a.in * a.stride : Expr(requested[k]);
            const Expr total = max(whole - a.out, 0), half = floor_div(total, 2);
            a.before = mode == AutoPad::SameUpper ? half : total - half;
        } else {
            a.before = pads[k];
            a.out = whole - pads[k] - pads[n + k];
        }
        c.require(!a.out.is_constant() || a.out.constant() >= 0,
                  fmt::format("the padding leaves an output dimension of {}", a.out.text()));
        a.window.in = a.in;
        if (a.stride == 1) {
            a.first = a.before;
            a.window.kernel = a.kernel;
            a.window.dilation = a.dilation;
            a.window.out = a.out;
        } else {
            a.first = floor_div(a.before, a.stride);
            a.window.kernel = (a.reach() + a.stride - 1) / a.stride;
            c.require(
                a.window.kernel <= std::max(a.kernel, kMostTaps),
                fmt::format("attribute 'dilations' holds {} beside a stride of {}: a phase would have {} taps, and "
                            "{} are supported",
                            a.dilation, a.stride, a.window.kernel, kMostTaps));
            a.window.out = floor_div(a.out - 1 + a.before, a.stride) - a.first + 1;
        }
        a.window.before = Expr(a.window.reach() - 1) - a.first;
        axes.push_back(a);
    }
    return axes;
}

/// w [g * ci, oi, kernel...]   ->   [g * oi * residues, ci, taps...], with reversed taps. Constant weights are
/// rearranged at compile time.
ValueId phase_weights(NodeContext& c, int64_t groups, const std::vector<TransposedAxis>& axes) {
    const Dims w = c.shape(1);
    const Expr ci = floor_div(w[0], groups);
    const size_t n = axes.size();
    Dims shape = {groups, w[1]};  // then residues, ci, taps
    for (const TransposedAxis& a : axes) shape.emplace_back(a.stride);
    shape.push_back(ci);
    for (const TransposedAxis& a : axes) shape.emplace_back(a.window.kernel);
    std::vector<Expr> index = {axis(0) * ci + axis(2 + n), axis(1)}, valid;
    for (size_t k = 0; k < n; ++k) {
        const TransposedAxis& a = axes[k];
        const Expr tap = Expr(a.window.kernel - 1) - axis(3 + n + k);
        if (a.stride == 1) {
            index.push_back(tap);
            continue;
        }
        const Expr at = axis(2 + k) + tap * a.stride;  // position in the dilated kernel
        index.push_back(floor_div(at, a.dilation));
        valid.push_back(Expr(a.reach() - 1) - at);
        if (a.dilation > 1) valid.push_back(-mod(at, a.dilation));
    }
    const ValueId v = c.b.view(c.in(1), shape, std::move(index), "phases", std::move(valid));
    Expr outs = w[1] * groups;
    for (const TransposedAxis& a : axes) outs = outs * a.stride;
    Dims flat = {outs, ci};
    for (const TransposedAxis& a : axes) flat.emplace_back(a.window.kernel);
    return c.b.reshape(v, std::move(flat));
}

/// [n, o * residues, q...]   ->   [n, o, y...],   y + before = (first + q) * stride + residue.
ValueId weave(NodeContext& c, ValueId phases, Expr outs, const std::vector<TransposedAxis>& axes) {
    Dims shape = {c.b.shape(phases)[0], outs};
    Expr channel = axis(1);
    std::vector<Expr> places;
    for (size_t k = 0; k < axes.size(); ++k) {
        const TransposedAxis& a = axes[k];
        shape.push_back(a.out);
        if (a.stride == 1) {
            places.push_back(axis(2 + k));
            continue;
        }
        const Expr at = axis(2 + k) + a.before - a.first * a.stride;
        channel = channel * a.stride + mod(at, a.stride);
        places.push_back(floor_div(at, a.stride));
    }
    std::vector<Expr> index = {axis(0), channel};
    index.insert(index.end(), places.begin(), places.end());
    return c.b.view(phases, std::move(shape), std::move(index), "weave");
}

/// One axis of a transposed convolution whose outputs are computed phase by phase.
struct Phase {
    int64_t quotient = 0, step = 0;  ///< (p + before) / stride = quotient + step * p
    int64_t taps = 0;                ///< per phase
};

/// The phases of every axis; none if an axis has not equally many outputs of each residue, or if its quotient is not
/// affine in p.
std::optional<std::vector<Phase>> affine_phases(const std::vector<TransposedAxis>& axes) {
    std::vector<Phase> phases;
    for (const TransposedAxis& a : axes) {
        if (!a.before.is_constant() || a.before.constant() < 0 || !mod(a.out, a.stride).is_constant(0))
            return std::nullopt;
        const int64_t before = a.before.constant(), odd = before % a.stride;
        if (odd != 0 && a.stride != 2) return std::nullopt;
        phases.push_back({before / a.stride, odd, (a.reach() + a.stride - 1) / a.stride});
    }
    return phases;
}

/// w [ci, o, kernel...]   ->   [p..., o, ci, taps...], with reversed taps.
ValueId whole_phase_weights(NodeContext& c, const std::vector<TransposedAxis>& axes, const std::vector<Phase>& phases) {
    const Dims w = c.shape(1);
    const size_t n = axes.size();
    Dims shape;
    std::vector<Expr> index = {axis(n + 1), axis(n)}, valid;
    for (const TransposedAxis& a : axes) shape.emplace_back(a.stride);
    shape.push_back(w[1]);
    shape.push_back(w[0]);
    for (size_t k = 0; k < n; ++k) {
        const TransposedAxis& a = axes[k];
        shape.emplace_back(phases[k].taps);
        const Expr residue = axis(k) + a.before - (phases[k].quotient + phases[k].step * axis(k)) * a.stride;
        const Expr at = residue + (phases[k].taps - 1 - axis(n + 2 + k)) * a.stride;  // position in the dilated kernel
        index.push_back(floor_div(at, a.dilation));
        valid.push_back(Expr(a.reach() - 1) - at);
        if (a.dilation > 1) valid.push_back(-mod(at, a.dilation));
    }
    return c.b.view(c.in(1), std::move(shape), std::move(index), "phases", std::move(valid));
}

/// x [n, ci, j...] with the weights of whole_phase_weights   ->   [n, p..., o, j...]
ValueId whole_phase_products(NodeContext& c, ValueId weights, const std::vector<TransposedAxis>& axes,
                             const std::vector<Phase>& phases) {
    const Dims x = c.shape(0), w = c.shape(1);
    const size_t n = axes.size();
    const DType storage = c.dtype(0), t = compute_type(storage);
    TensorExpr e;
    e.extents = {x[0]};
    for (const TransposedAxis& a : axes) e.extents.emplace_back(a.stride);
    e.extents.push_back(w[1]);
    for (const TransposedAxis& a : axes) e.extents.push_back(floor_div(a.out, a.stride));
    e.spatial = e.extents.size();
    const Expr channel = axis(e.extents.size());
    e.extents.push_back(x[1]);
    Access image{c.in(0), {axis(0), channel}, {}, 0};
    Access window{weights, {}, {}, 0};
    for (size_t k = 0; k < n; ++k) window.index.push_back(axis(1 + k));
    window.index.push_back(axis(1 + n));
    window.index.push_back(channel);
    for (size_t k = 0; k < n; ++k) {
        Expr tap = 0;
        if (phases[k].taps > 1) {
            tap = axis(e.extents.size());
            e.extents.emplace_back(phases[k].taps);
        }
        const Expr at =
            axis(2 + n + k) + phases[k].step * axis(1 + k) + phases[k].quotient - (phases[k].taps - 1) + tap;
        image.index.push_back(at);
        image.valid.push_back(at);
        image.valid.push_back(axes[k].in - 1 - at);
        window.index.push_back(tap);
    }
    e.reducer = Reducer::Sum;
    e.accesses = {std::move(image), std::move(window)};
    e.body.set_root(e.body.binary(ScalarOp::Mul, e.body.cast(t, e.body.access(0, storage)),
                                  e.body.cast(t, e.body.access(1, c.dtype(1)))));
    return c.b.emit(std::move(e), storage, "products");
}

/// The same without the outputs that the padding removes, if every axis has equally many outputs of each residue:
/// out[j * stride + p] = sum of x[j + (p + before) / stride - t] * w[...] over t, a convolution for each p. The
/// quotient must be affine in p: the stride is 2, or the padding is a multiple of the stride. None otherwise.
///     4 x 4 taps, stride 2, padding 1, 4 x 4 to 8 x 8: four 4 x 4 results of 2 x 2 taps each instead of 5 x 5
std::optional<ValueId> whole_phases(NodeContext& c, const std::vector<TransposedAxis>& axes) {
    const Dims x = c.shape(0), w = c.shape(1);
    const size_t n = axes.size();
    const auto phases = affine_phases(axes);
    if (!phases) return std::nullopt;
    // With few channels, vectors are filled with residues.
    constexpr int64_t kFewChannels = 16;
    const bool several = std::any_of(axes.begin(), axes.end(), [](const TransposedAxis& a) { return a.stride > 1; });
    if (!several || (w[1].is_constant() && w[1].constant() < kFewChannels)) return std::nullopt;
    const ValueId y = whole_phase_products(c, whole_phase_weights(c, axes, *phases), axes, *phases);

    Dims out = {x[0], w[1]};
    std::vector<Expr> from = {axis(0)};
    for (size_t k = 0; k < n; ++k) from.push_back(mod(axis(2 + k), axes[k].stride));
    from.push_back(axis(1));
    for (size_t k = 0; k < n; ++k) {
        from.push_back(floor_div(axis(2 + k), axes[k].stride));
        out.push_back(axes[k].out);
    }
    return c.b.view(y, std::move(out), std::move(from), "weave");
}

void conv_transpose(NodeContext& c) {
    const Dims x = c.shape(0), w = c.shape(1);
    require_images(c, x, w);
    const int64_t groups = group_attr(c);
    const std::string misfit =
        fmt::format("{} input channels in {} groups do not fit weights of shape {}", x[1].text(), groups, to_string(w));
    c.b.require_equal(x[1], w[0], misfit, "channels");
    c.b.require_multiple(w[0], groups, misfit, "channels");
    const auto axes = transposed_axes(c, sub_dims(x, 2, x.size() - 2), kernel_dims(c, w));
    if (groups == 1)
        if (const auto y = whole_phases(c, axes)) return c.out(0, add_bias(c, *y, 2));
    std::vector<WindowAxis> windows;
    for (const TransposedAxis& a : axes) windows.push_back(a.window);
    const ValueId phases = convolve(c, c.in(0), phase_weights(c, groups, axes), groups, windows);
    c.out(0, add_bias(c, weave(c, phases, w[1] * groups, axes), 2));
}

// --- CausalConvWithState

/// Depthwise convolution over the current and the k - 1 previous positions. Positions before the first come from the
/// state (or are 0), and the last k - 1 positions are the next state.
void causal_conv_with_state(NodeContext& c) {
    const Dims x = c.shape(0), w = c.shape(1);
    require_images(c, x, w);
    const std::string misfit = fmt::format(
        "input [batch, channels, length] and weights [channels, 1, k] are expected, and the shapes are {} and {}",
        to_string(x), to_string(w));
    c.require(x.size() == 3, misfit);
    c.b.require_equal(w[1], 1, misfit, "channels");
    c.b.require_equal(w[0], x[1], misfit, "channels");
    const int64_t k = kernel_dims(c, w).front();
    const std::string activation = c.node.attr_string("activation", "none");
    c.require(activation == "none" || activation == "silu" || activation == "swish",
              fmt::format("attribute 'activation' has the unknown value {}", quoted_name(activation)));
    ValueId whole = c.in(0);
    if (c.has(3)) {
        const std::vector<ValueId> parts = {c.in(3), whole};
        whole = c.b.concat(parts, 2);
    } else {
        whole = c.b.pad(whole, {0, 0, k - 1}, {0, 0, 0}, 0);
    }
    WindowAxis window;
    window.in = x[2] + (k - 1);
    window.out = x[2];
    window.kernel = k;
    TensorExpr e;
    const DType t = c.dtype(0);
    e.extents = x;
    e.spatial = 3;
    const std::vector<Expr> taps = add_kernel_axes(e.extents, {window});
    e.reducer = k > 1 ? Reducer::Sum : Reducer::None;
    e.accesses = {window_access(whole, {axis(0), axis(1)}, {window}, 2, taps, 0),
                  {c.in(1), {axis(1), 0, taps[0]}, {}, 0}};
    e.body.set_root(e.body.binary(ScalarOp::Mul, e.body.access(0, t), e.body.access(1, t)));
    ValueId y = add_bias(c, c.b.emit(std::move(e), compute_type(t), "products"), 2);
    if (activation != "none")
        y = c.b.map(
            {y}, c.b.dtype(y),
            [](ScalarBody& body, Ids v) -> ScalarId {
                const Sx a(body, v[0]);
                return a / ((-a).exp() + 1);
            },
            "silu");
    c.out(0, c.b.cast(y, t));
    c.out(1, c.b.slice(whole, 2, x[2], k - 1));
}

}  // namespace

ValueId channels_first(NodeContext& c, ValueId x) {
    const auto rank = static_cast<int64_t>(c.b.rank(x));
    c.require(rank >= 3,
              fmt::format("an input of rank 3 or more is expected, and its shape is {}", to_string(c.b.shape(x))));
    std::vector<int64_t> order = {0, rank - 1};
    for (int64_t k = 1; k + 1 < rank; ++k) order.push_back(k);
    return c.b.transpose(x, order);
}

ValueId channels_last(NodeContext& c, ValueId y) {
    std::vector<int64_t> order = {0};
    for (int64_t k = 2; k < static_cast<int64_t>(c.b.rank(y)); ++k) order.push_back(k);
    order.push_back(1);
    return c.b.transpose(y, order);
}

ValueId convolution(NodeContext& c, ValueId input, ValueId weights) {
    const Dims x = c.b.shape(input), w = c.b.shape(weights);
    require_ranks(c, x, w);
    const int64_t groups = group_attr(c);
    c.b.require_equal(
        x[1], w[1] * groups,
        fmt::format("{} input channels in {} groups do not fit weights of shape {}", x[1].text(), groups, to_string(w)),
        "channels");
    c.b.require_multiple(
        w[0], groups, fmt::format("{} output channels do not divide into {} groups", w[0].text(), groups), "channels");
    return convolve(c, input, weights, groups, window_axes(c, sub_dims(x, 2, x.size() - 2), kernel_dims(c, w)));
}

ValueId biased_convolution(NodeContext& c, ValueId x) {
    require_images(c, c.b.shape(x), c.shape(1));
    return add_bias(c, convolution(c, x, c.in(1)), 2);
}

std::vector<OpLowering> conv_lowerings() {
    return {
        {"", "CausalConvWithState", 27, causal_conv_with_state},
        {"", "Conv", 1, conv},
        {"", "ConvTranspose", 1, conv_transpose},
    };
}

}  // namespace tilewright
