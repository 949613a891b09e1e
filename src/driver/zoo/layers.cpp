#include "driver/zoo/layers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace tilewright::nets {

namespace {

constexpr double kBiasDeviation = 0.05;
constexpr double kNormDeviation = 0.1;  // of batch-norm's scale, mean and variance, relative to what they describe
constexpr double kNormEpsilon = 1e-5;
constexpr double kSmallest = 1e-6;

/// True if a filter sums to zero. A filter over many channels does: then only the input's variance matters. A depthwise
/// filter does not: its output would be zero in every smooth region of the image.
bool is_centred(int64_t fan_in, int64_t channels) { return channels > 1 && fan_in >= 8; }

/// Weights with output variance gain^2, one row per output channel.
Draw filter(const Value& x, int64_t fan_in, int64_t channels, double gain) {
    Draw d;
    d.centred = is_centred(fan_in, channels);
    const double power = d.centred ? x.variance : x.variance + x.mean * x.mean;
    d.deviation = gain / std::sqrt(static_cast<double>(fan_in) * std::max(power, kSmallest));
    d.row = fan_in;
    return d;
}

struct Window {
    Ints kernel, stride, pad, dilation;
    Extents shape;  // of the output
    Ints weight;    // its shape
    int64_t fan_in = 1;
    int64_t channels = 0;  // input channels of a filter

    Window(const Value& x, const ConvSpec& spec)
        : kernel(for_each_axis(spec.kernel, x.rank() - 2)),
          stride(for_each_axis(spec.stride, x.rank() - 2)),
          pad(for_each_axis(spec.pad, x.rank() - 2)),
          dilation(for_each_axis(spec.dilation, x.rank() - 2)),
          shape(x.shape),
          channels(x.size(1) / spec.groups) {
        TW_CHECK(x.size(1) % spec.groups == 0 && spec.out % spec.groups == 0, "groups of the convolution of '{}'",
                 x.name);
        shape[1] = Extent(spec.out);
        weight = {spec.out, channels};
        fan_in = channels;
        for (size_t i = 0; i < kernel.size(); ++i) {
            shape[i + 2] = Extent(window_count(shape[i + 2].size, kernel[i], stride[i], pad[i], dilation[i]));
            weight.push_back(kernel[i]);
            fan_in *= kernel[i];
        }
    }

    Attributes attributes(int64_t groups) const {
        Ints pads = pad;
        pads.insert(pads.end(), pad.begin(), pad.end());
        return {
            {"kernel_shape", kernel}, {"strides", stride}, {"pads", pads}, {"dilations", dilation}, {"group", groups}};
    }
};

Value conv_node(GraphBuilder& b, const Value& x, const Value& w, const Value& bias, const Window& window,
                const ConvSpec& spec) {
    Value out = x;
    out.shape = window.shape;
    out.mean = 0;
    out.variance = spec.gain * spec.gain;
    b.count_macs(element_count(out.shape) * window.fan_in);
    std::vector<Value> inputs = {x, w};
    if (!bias.name.empty()) inputs.push_back(bias);
    return b.node("Conv", inputs, window.attributes(spec.groups), std::vector<Value>{out})[0];
}

Draw bias_draw(double gain) { return {0, kBiasDeviation * gain}; }

/// The four vectors of a batch normalisation over channels of expected mean `mean` and variance `variance`.
struct NormDraws {
    Draw scale, shift, mean, variance;
    double out_variance;  // each of the four vectors increases the variance of the outputs slightly

    NormDraws(double in_mean, double in_variance, double gain, double shift_deviation)
        : scale{gain, kNormDeviation * gain},
          shift{0, shift_deviation * gain},
          mean{in_mean, kNormDeviation * std::sqrt(in_variance)},
          variance{in_variance, kNormDeviation * in_variance},
          out_variance(gain * gain * (1 + 3 * kNormDeviation * kNormDeviation + shift_deviation * shift_deviation)) {
        variance.lowest = in_variance / 4;
    }
};

/// `mean` is the running mean's buffer.
Value norm_node(GraphBuilder& b, const Value& x, const NormDraws& draws, const Value& mean) {
    const Ints channels = {x.size(1)};
    const Value scale = b.weight("weight", channels, draws.scale);
    const Value shift = b.weight("bias", channels, draws.shift);
    const Value variance = b.buffer("running_var", channels, draws.variance);
    Value out = x;
    out.mean = 0;
    out.variance = draws.out_variance;
    return b.node("BatchNormalization", {x, scale, shift, mean, variance},
                  {{"epsilon", static_cast<float>(kNormEpsilon)}}, std::vector<Value>{out})[0];
}

/// Weight and bias of a recurrent layer, and a zero state; the reshape of Y to [seq, batch, directions * hidden].
Value recurrent(GraphBuilder& b, const char* op, const std::string& name, const Value& x, const RecurrentSpec& spec,
                int64_t gates, int states, Attributes attributes) {
    const auto scope = b.scope(name);
    const int64_t directions = spec.bidirectional ? 2 : 1;
    const int64_t in = x.size(-1);
    const int64_t hidden = spec.hidden;
    const auto draw = [](int64_t fan_in, double power) {
        return Draw{0, 1.0 / std::sqrt(static_cast<double>(fan_in) * std::max(power, kSmallest))};
    };
    const Value w = b.weight("weight_ih", {directions, gates * hidden, in}, draw(in, x.variance + x.mean * x.mean));
    const Value r = b.weight("weight_hh", {directions, gates * hidden, hidden}, draw(hidden, 1));
    const Value bias = b.weight("bias", {directions, 2 * gates * hidden}, bias_draw(1));
    // ConstantOfShape gives the zero state its batch size at run time, as in exported models: [directions, batch,
    // hidden].
    const Extents state_shape = {directions, x[1], hidden};
    Value zeros = shape_vector(b, state_shape, x);
    zeros.dtype = DType::F32;
    std::vector<Value> inputs = {x, w, r, bias, Value()};
    const Value state = b.node("ConstantOfShape", {zeros},
                               {{"value", Tensor::of(DType::F32, {1}, std::vector<float>{0})}}, state_shape);
    for (int i = 0; i < states; ++i) inputs.push_back(state);
    attributes["hidden_size"] = hidden;
    attributes["direction"] = spec.bidirectional ? "bidirectional" : "forward";
    Value y = x;
    y.shape = {x[0], directions, x[1], hidden};
    y.mean = 0;
    y.variance = 0.1;
    b.count_macs(x.size(0) * x.size(1) * directions * gates * hidden * (in + hidden));
    y = b.node(op, inputs, attributes, std::vector<Value>{y})[0];
    if (directions == 1) return squeeze(b, y, {1});
    return reshape(b, transpose(b, y, {0, 2, 1, 3}), {x[0], x[1], directions * hidden}, x);
}

}  // namespace

Value conv(GraphBuilder& b, const std::string& name, const Value& x, const ConvSpec& spec) {
    const auto scope = b.scope(name);
    const Window window(x, spec);
    const Value w = b.weight("weight", window.weight, filter(x, window.fan_in, window.channels, spec.gain));
    const Value bias = spec.bias ? b.weight("bias", {spec.out}, bias_draw(spec.gain)) : Value();
    return conv_node(b, x, w, bias, window, spec);
}

Value conv_norm(GraphBuilder& b, const std::string& name, const Value& x, const ConvSpec& spec) {
    const Window window(x, spec);
    Draw weights = filter(x, window.fan_in, window.channels, 1);
    // The running mean cancels the output mean of a filter that does not sum to zero, so only the variance matters
    // here.
    if (!weights.centred)
        weights.deviation = 1 / std::sqrt(static_cast<double>(window.fan_in) * std::max(x.variance, kSmallest));
    const NormDraws norm(0, 1, spec.gain, spec.shift);
    const std::string norm_name = name + "_bn";
    const auto row = static_cast<size_t>(window.fan_in);

    // Without data every vector is empty, and no `fill` runs.
    std::vector<float> plain, means;
    {
        const auto scope = b.scope(name);
        plain = b.draw("weight", spec.out * window.fan_in, weights);
    }
    {
        const auto scope = b.scope(norm_name);
        means = b.draw("running_mean", spec.out, norm.mean);
    }
    if (!weights.centred) {
        for (size_t c = 0; c < means.size(); ++c) {
            const double sum = std::accumulate(plain.begin() + c * row, plain.begin() + (c + 1) * row, 0.0);
            means[c] = static_cast<float>(means[c] + sum * x.mean);
        }
    }
    const auto copy_of = [](const std::vector<float>& from) {
        return [&from](std::span<float> to) { std::copy(from.begin(), from.end(), to.begin()); };
    };

    if (b.options().keep_batch_norm) {
        Value y;
        {
            const auto scope = b.scope(name);
            const Value w = b.weight("weight", window.weight, copy_of(plain));
            y = conv_node(b, x, w, Value(), window, spec);
        }
        const auto scope = b.scope(norm_name);
        const Value mean = b.buffer("running_mean", {spec.out}, copy_of(means));
        return norm_node(b, y, norm, mean);
    }

    // w * x -> (w * x - mean) * s + shift with s = scale / sqrt(variance + eps)  =  (w s) * x + (shift - mean s)
    std::vector<float> scale, shift, variance;
    {
        const auto scope = b.scope(norm_name);
        scale = b.draw("weight", spec.out, norm.scale);
        shift = b.draw("bias", spec.out, norm.shift);
        variance = b.draw("running_var", spec.out, norm.variance);
    }
    b.count_folded_parameters(spec.out);  // scale and shift become one bias
    const auto factor = [&](size_t c) { return scale[c] / std::sqrt(variance[c] + kNormEpsilon); };
    const auto scope = b.scope(name);
    const Value w = b.weight("weight", window.weight, [&](std::span<float> out) {
        for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(plain[i] * factor(i / row));
    });
    const Value bias = b.weight("bias", {spec.out}, [&](std::span<float> out) {
        for (size_t c = 0; c < out.size(); ++c) out[c] = static_cast<float>(shift[c] - means[c] * factor(c));
    });
    Value out = conv_node(b, x, w, bias, window, spec);
    out.variance = norm.out_variance;
    return out;
}

Value batch_norm(GraphBuilder& b, const std::string& name, const Value& x) {
    const auto scope = b.scope(name);
    const NormDraws norm(x.mean, std::max(x.variance, kSmallest), 1, kNormDeviation);
    const Value mean = b.buffer("running_mean", {x.size(1)}, norm.mean);
    return norm_node(b, x, norm, mean);
}

Value conv_transpose(GraphBuilder& b, const std::string& name, const Value& x, const ConvSpec& spec) {
    const auto scope = b.scope(name);
    const int64_t spatial = x.rank() - 2;
    const Ints kernel = for_each_axis(spec.kernel, spatial);
    const Ints stride = for_each_axis(spec.stride, spatial);
    const Ints padding = for_each_axis(spec.pad, spatial);
    Ints pads = padding;
    pads.insert(pads.end(), padding.begin(), padding.end());
    Value out = x;
    out.shape[1] = Extent(spec.out);
    out.mean = 0;
    out.variance = spec.gain * spec.gain;
    const int64_t channels = x.size(1) / spec.groups;
    Ints weight_shape = {x.size(1), spec.out / spec.groups};
    double reach = static_cast<double>(channels);  // terms of one output element: kernel / stride of them per axis
    int64_t macs = element_count(x.shape) * (spec.out / spec.groups);
    for (size_t i = 0; i < kernel.size(); ++i) {
        out.shape[i + 2] = Extent((x.shape[i + 2].size - 1) * stride[i] + kernel[i] - 2 * padding[i]);
        weight_shape.push_back(kernel[i]);
        macs *= kernel[i];
        const int64_t taps = std::min(x.shape[i + 2].size, std::max<int64_t>(1, kernel[i] / stride[i]));
        reach *= static_cast<double>(taps);
    }
    b.count_macs(macs);
    const double power = std::max(x.variance + x.mean * x.mean, kSmallest);
    const Value w = b.weight("weight", weight_shape, Draw{0, spec.gain / std::sqrt(reach * power)});
    std::vector<Value> inputs = {x, w};
    if (spec.bias) inputs.push_back(b.weight("bias", {spec.out}, bias_draw(spec.gain)));
    const Attributes attributes = {
        {"kernel_shape", kernel}, {"strides", stride}, {"pads", pads}, {"group", spec.groups}};
    return b.node("ConvTranspose", inputs, attributes, std::vector<Value>{out})[0];
}

Value linear(GraphBuilder& b, const std::string& name, const Value& x, int64_t out, const LinearSpec& spec) {
    const auto scope = b.scope(name);
    const int64_t in = x.size(-1);
    const Draw draw = filter(x, in, in, spec.gain);
    const Value w = b.weight("weight", {in, out}, [&](std::span<float> to) {
        const std::vector<float> rows = transposed(b.draw("weight", in * out, draw), out, in);
        std::copy(rows.begin(), rows.end(), to.begin());
    });
    Value y = matmul(b, x, w);
    if (spec.bias) y = add(b, b.weight("bias", {out}, bias_draw(spec.gain)), y);
    y.mean = 0;
    y.variance = spec.gain * spec.gain;
    return y;
}

Value gemm(GraphBuilder& b, const std::string& name, const Value& x, int64_t out, const LinearSpec& spec) {
    const auto scope = b.scope(name);
    TW_CHECK(x.rank() == 2, "Gemm of '{}' with rank {}", x.name, x.rank());
    const int64_t in = x.size(1);
    std::vector<Value> inputs = {x, b.weight("weight", {out, in}, filter(x, in, in, spec.gain))};
    if (spec.bias) inputs.push_back(b.weight("bias", {out}, bias_draw(spec.gain)));
    Value y = x;
    y.shape = {x[0], out};
    y.mean = 0;
    y.variance = spec.gain * spec.gain;
    b.count_macs(x.size(0) * in * out);
    return b.node("Gemm", inputs, {{"alpha", 1.0f}, {"beta", 1.0f}, {"transB", 1}}, std::vector<Value>{y})[0];
}

Value layer_norm(GraphBuilder& b, const std::string& name, const Value& x, float epsilon) {
    const auto scope = b.scope(name);
    const Value scale = b.weight("weight", {x.size(-1)}, Draw{1, kNormDeviation});
    const Value shift = b.weight("bias", {x.size(-1)}, Draw{0, kNormDeviation});
    Value y = x;
    if (b.options().opset >= 17) {
        y = b.node("LayerNormalization", {x, scale, shift}, {{"axis", -1}, {"epsilon", epsilon}});
    } else {
        const Value centred = sub(b, x, reduce_mean(b, x, {-1}, true));
        const Value squares = b.node("Pow", {centred, b.scalar(2)});
        const Value deviation = b.node("Sqrt", {add(b, reduce_mean(b, squares, {-1}, true), b.scalar(epsilon))});
        y = add(b, mul(b, div(b, centred, deviation), scale), shift);
    }
    y.mean = 0;
    y.variance = 1;
    return y;
}

Value instance_norm(GraphBuilder& b, const std::string& name, const Value& x, float epsilon) {
    const auto scope = b.scope(name);
    const Value scale = b.weight("weight", {x.size(1)}, Draw{1, kNormDeviation});
    const Value shift = b.weight("bias", {x.size(1)}, Draw{0, kNormDeviation});
    Value y = x;
    y.mean = 0;
    y.variance = 1;
    return b.node("InstanceNormalization", {x, scale, shift}, {{"epsilon", epsilon}}, std::vector<Value>{y})[0];
}

Value embedding(GraphBuilder& b, const std::string& name, const Value& ids, int64_t count, int64_t dim,
                double deviation) {
    const auto scope = b.scope(name);
    const Value table = b.weight("weight", {count, dim}, Draw{0, deviation});
    Extents shape = ids.shape;
    shape.emplace_back(dim);
    return b.node("Gather", {table, ids}, {{"axis", 0}}, shape);
}

Value attend(GraphBuilder& b, const Value& q, const Value& k_transposed, const Value& v,
             const std::function<Value(const Value&)>& mask) {
    const float root = std::sqrt(static_cast<float>(q.size(-1)));
    Value scores = div(b, matmul(b, q, k_transposed), b.scalar(root));
    if (mask) scores = mask(scores);
    Value out = matmul(b, softmax(b, scores, -1), v);
    out.mean = 0;
    out.variance = 0.1 * v.variance;  // an average over the few tokens that a row attends to
    return out;
}

Value lstm(GraphBuilder& b, const std::string& name, const Value& x, const RecurrentSpec& spec) {
    return recurrent(b, "LSTM", name, x, spec, 4, 2, {});
}

Value gru(GraphBuilder& b, const std::string& name, const Value& x, const RecurrentSpec& spec) {
    return recurrent(b, "GRU", name, x, spec, 3, 1, {{"linear_before_reset", 1}});
}

Value split_heads(GraphBuilder& b, const Value& x, int64_t heads, const Ints& perm) {
    return transpose(b, reshape(b, x, {x[0], x[1], heads, x.size(2) / heads}), perm);
}

}  // namespace tilewright::nets
