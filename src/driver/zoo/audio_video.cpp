// One and three spatial axes: M5 (Dai et al., 2016) and a WaveNet (van den Oord et al., 2016) on sound, R3D-18 (Tran et
// al., 2017) and a small C3D (Tran et al., 2014) on video.

#include "driver/zoo/families.h"
#include "driver/zoo/layers.h"

namespace tilewright::nets {

namespace {

/// Keyword spotting from the waveform: a long first filter, then short ones with pooling.
void m5(GraphBuilder& b, const ZooSettings& s) {
    Value x = b.input("audio", DType::F32, {batch_extent(s), 1, s.at("samples")});
    const Ints widths = {32, 32, 64, 64};
    for (size_t i = 0; i < widths.size(); ++i) {
        const std::string n = std::to_string(i + 1);
        x = conv(b, "conv" + n, x, {.out = widths[i], .kernel = {i == 0 ? 80 : 3}, .stride = {i == 0 ? 16 : 1}});
        x = max_pool(b, relu(b, batch_norm(b, "bn" + n, x)), {4}, {4}, {0});
    }
    x = transpose(b, average_pool(b, x, {x.size(2)}, {1}, {0}), {0, 2, 1});
    b.output(b.node("LogSoftmax", {linear(b, "fc1", x, 35)}, {{"axis", 2}}), "scores");
}

/// A causal filter of two taps: zeros on the left, as many as the dilation.
Value causal_conv(GraphBuilder& b, const std::string& name, const Value& x, int64_t out, int64_t dilation) {
    const Value padded = pad(b, x, {0, 0, dilation}, {0, 0, 0}, "constant");
    return conv(b, name, padded, {.out = out, .kernel = {2}, .dilation = {dilation}});
}

void wavenet(GraphBuilder& b, const ZooSettings& s) {
    constexpr int64_t kWidth = 64;
    constexpr int64_t kSkip = 128;
    constexpr int64_t kLevels = 256;  // of the quantised sample that is predicted
    Value x = b.input("audio", DType::F32, {batch_extent(s), 1, s.at("samples")});
    x = causal_conv(b, "input", x, kWidth, 1);
    Value sum;
    for (int64_t stack = 0; stack < 2; ++stack) {
        for (int64_t depth = 0; depth < 10; ++depth) {
            const auto scope = b.scope("layers." + std::to_string(stack * 10 + depth));
            const std::vector<Value> halves =
                split(b, causal_conv(b, "dilated", x, 2 * kWidth, int64_t{1} << depth), 1, {kWidth, kWidth});
            const Value gated = mul(b, tanh(b, halves[0]), sigmoid(b, halves[1]));
            const Value skip = conv(b, "skip", gated, {.out = kSkip});
            sum = sum.name.empty() ? skip : add(b, sum, skip);
            x = add(b, conv(b, "residual", gated, {.out = kWidth, .gain = 0.5}), x);
        }
    }
    const Value y = relu(b, conv(b, "head.0", relu(b, sum), {.out = kSkip}));
    b.output(conv(b, "head.1", y, {.out = kLevels}), "logits");
}

Value video_input(GraphBuilder& b, const ZooSettings& s) {
    return b.input("input", DType::F32, {batch_extent(s), 3, s.at("frames"), s.at("size"), s.at("size")});
}

void r3d_18(GraphBuilder& b, const ZooSettings& s) {
    Value x = video_input(b, s);
    x = relu(b, conv_norm(b, "stem", x, {.out = 64, .kernel = {3, 7, 7}, .stride = {1, 2, 2}, .pad = {1, 3, 3}}));
    for (int stage = 0; stage < 4; ++stage) {
        const auto stage_scope = b.scope("layer" + std::to_string(stage + 1));
        const int64_t width = int64_t{64} << stage;
        for (int block = 0; block < 2; ++block) {
            const auto scope = b.scope(std::to_string(block));
            const int64_t stride = block == 0 && stage > 0 ? 2 : 1;
            Value y = relu(b, conv_norm(b, "conv1", x, {.out = width, .kernel = {3}, .stride = {stride}, .pad = {1}}));
            y = conv_norm(b, "conv2", y, {.out = width, .kernel = {3}, .pad = {1}, .gain = 0.5});
            const Value shortcut = stride == 1 ? x : conv_norm(b, "downsample", x, {.out = width, .stride = {stride}});
            x = relu(b, add(b, y, shortcut));
        }
    }
    b.output(gemm(b, "fc", flatten(b, global_average_pool(b, x)), 400), "output");
}

void c3d_small(GraphBuilder& b, const ZooSettings& s) {
    Value x = video_input(b, s);
    const Ints widths = {16, 32, 64, 128};
    for (size_t i = 0; i < widths.size(); ++i) {
        x = relu(b, conv(b, "conv" + std::to_string(i + 1), x, {.out = widths[i], .kernel = {3}, .pad = {1}}));
        // The first pooling keeps the time axis, as in C3D.
        x = i == 0 ? max_pool(b, x, {1, 2, 2}, {1, 2, 2}, {0}) : max_pool(b, x, {2}, {2}, {0});
    }
    x = relu(b, gemm(b, "fc1", flatten(b, x), 256));
    b.output(gemm(b, "fc2", x, 101), "output");
}

}  // namespace

void add_audio_and_video_models(std::vector<Recipe>& recipes) {
    const ZooOption frames = {"frames", 16, 8, 256, "frames of the video"};
    recipes.push_back({"m5",
                       "keyword spotting on the waveform, 1-D convolutions",
                       {batch_option(), {"samples", 8000, 6848, 1 << 24, "samples of sound"}},
                       m5});
    recipes.push_back({"wavenet",
                       "gated causal 1-D convolutions with dilations 1 to 512, twice",
                       {batch_option(), {"samples", 4096, 1, 1 << 24, "samples of sound"}},
                       wavenet});
    recipes.push_back({"r3d_18",
                       "residual network of 3x3x3 convolutions",
                       {batch_option(), frames, size_option(112, 32, 1024), norm_option()},
                       r3d_18});
    recipes.push_back({"c3d_small",
                       "four 3-D convolutions with pooling",
                       {batch_option(), frames, size_option(56, 16, 1024)},
                       c3d_small});
}

}  // namespace tilewright::nets
