// MobileNetV2 (Sandler et al., 2018), EfficientNet-B0 (Tan and Le, 2019) and ShuffleNetV2 (Ma et al., 2018), as in
// torchvision.

#include <algorithm>

#include "driver/zoo/families.h"
#include "driver/zoo/layers.h"

namespace tilewright::nets {

namespace {

/// A row of the tables in both papers: n blocks, the first with the stride.
struct Stage {
    int64_t expansion, channels, blocks, stride, kernel;
};

/// 1x1 up, depthwise, 1x1 down without an activation.
Value inverted_residual(GraphBuilder& b, const Value& x, int64_t expansion, int64_t out, int64_t stride) {
    const int64_t wide = x.size(1) * expansion;
    Value y = x;
    if (expansion != 1) y = relu6(b, conv_norm(b, "expand", y, {.out = wide}));
    y = relu6(
        b, conv_norm(b, "depthwise", y, {.out = wide, .kernel = {3}, .stride = {stride}, .pad = {1}, .groups = wide}));
    const bool residual = stride == 1 && x.size(1) == out;
    y = conv_norm(b, "project", y, {.out = out, .gain = residual ? 0.5 : 1.0});
    return residual ? add(b, x, y) : y;
}

/// The channels of a narrower or wider network: multiples of 8, at least 90 % of what `percent` gives.
int64_t scaled(int64_t channels, int64_t percent) {
    const int64_t wanted = channels * percent;
    const int64_t rounded = std::max<int64_t>(8, (wanted + 400) / 800 * 8);
    return 10 * rounded * 100 < 9 * wanted ? rounded + 8 : rounded;
}

void mobilenet_v2(GraphBuilder& b, const ZooSettings& s) {
    const int64_t width = s.at("width");
    const std::vector<Stage> stages = {{1, 16, 1, 1, 3}, {6, 24, 2, 2, 3},  {6, 32, 3, 2, 3}, {6, 64, 4, 2, 3},
                                       {6, 96, 3, 1, 3}, {6, 160, 3, 2, 3}, {6, 320, 1, 1, 3}};
    Value x = image_input(b, s, s.at("in"));
    {
        const auto features = b.scope("features");
        x = relu6(b, conv_norm(b, "stem", x, {.out = scaled(32, width), .kernel = {3}, .stride = {2}, .pad = {1}}));
        int index = 1;
        for (const Stage& stage : stages) {
            for (int64_t i = 0; i < stage.blocks; ++i) {
                const auto scope = b.scope(std::to_string(index++));
                const int64_t out = scaled(stage.channels, width);
                x = inverted_residual(b, x, stage.expansion, out, i == 0 ? stage.stride : 1);
            }
        }
        x = relu6(b, conv_norm(b, "last", x, {.out = scaled(1280, std::max<int64_t>(100, width))}));
    }
    b.output(gemm(b, "classifier", flatten(b, global_average_pool(b, x)), 1000), "output");
}

/// Scales channels by gates computed from the whole image.
Value squeeze_excite(GraphBuilder& b, const Value& x, int64_t squeezed) {
    const auto scope = b.scope("se");
    Value gate = global_average_pool(b, x);
    gate = silu(b, conv(b, "fc1", gate, {.out = squeezed}));
    gate = sigmoid(b, conv(b, "fc2", gate, {.out = x.size(1), .gain = 0.7}));
    return mul(b, gate, x);
}

constexpr double kMobileShift = 0.1;  // gates and SiLU damp differences enough

Value mbconv(GraphBuilder& b, const Value& x, const Stage& stage, int64_t stride) {
    const int64_t wide = x.size(1) * stage.expansion;
    Value y = x;
    if (stage.expansion != 1) y = silu(b, conv_norm(b, "expand", y, {.out = wide, .shift = kMobileShift}));
    y = silu(b, conv_norm(b, "depthwise", y,
                          {.out = wide,
                           .kernel = {stage.kernel},
                           .stride = {stride},
                           .pad = {stage.kernel / 2},
                           .groups = wide,
                           .shift = kMobileShift}));
    y = squeeze_excite(b, y, std::max<int64_t>(1, x.size(1) / 4));
    const bool residual = stride == 1 && x.size(1) == stage.channels;
    y = conv_norm(b, "project", y, {.out = stage.channels, .gain = residual ? 0.5 : 1.0, .shift = kMobileShift});
    return residual ? add(b, x, y) : y;
}

void efficientnet_b0(GraphBuilder& b, const ZooSettings& s) {
    const std::vector<Stage> stages = {{1, 16, 1, 1, 3},  {6, 24, 2, 2, 3},  {6, 40, 2, 2, 5}, {6, 80, 3, 2, 3},
                                       {6, 112, 3, 1, 5}, {6, 192, 4, 2, 5}, {6, 320, 1, 1, 3}};
    Value x = image_input(b, s);
    {
        const auto features = b.scope("features");
        x = silu(b, conv_norm(b, "stem", x, {.out = 32, .kernel = {3}, .stride = {2}, .pad = {1}}));
        for (size_t i = 0; i < stages.size(); ++i) {
            const auto stage_scope = b.scope(std::to_string(i + 1));
            for (int64_t block = 0; block < stages[i].blocks; ++block) {
                const auto scope = b.scope(std::to_string(block));
                x = mbconv(b, x, stages[i], block == 0 ? stages[i].stride : 1);
            }
        }
        x = silu(b, conv_norm(b, "last", x, {.out = 1280}));
    }
    b.output(gemm(b, "classifier", flatten(b, global_average_pool(b, x)), 1000), "output");
}

/// Channels g*c + i -> i*2 + g: interleaves the halves of a block, so that the next block mixes them.
Value channel_shuffle(GraphBuilder& b, const Value& x) {
    const int64_t half = x.size(1) / 2;
    const Value groups = reshape(b, x, {x[0], 2, half, x[2], x[3]});
    return reshape(b, transpose(b, groups, {0, 2, 1, 3, 4}), x.shape, x);
}

Value shuffle_branch(GraphBuilder& b, const Value& x, int64_t half, int64_t stride) {
    const auto scope = b.scope("branch2");
    Value y = relu(b, conv_norm(b, "0", x, {.out = half}));
    y = conv_norm(b, "3", y, {.out = half, .kernel = {3}, .stride = {stride}, .pad = {1}, .groups = half});
    return relu(b, conv_norm(b, "5", y, {.out = half}));
}

Value shuffle_unit(GraphBuilder& b, const Value& x, int64_t out, int64_t stride) {
    const int64_t half = out / 2;
    if (stride == 1) {
        const std::vector<Value> parts = split(b, x, 1, {half, half});
        return channel_shuffle(b, concat(b, {parts[0], shuffle_branch(b, parts[1], half, 1)}, 1));
    }
    Value left;
    {
        const auto scope = b.scope("branch1");
        const int64_t in = x.size(1);
        left = conv_norm(b, "0", x, {.out = in, .kernel = {3}, .stride = {stride}, .pad = {1}, .groups = in});
        left = relu(b, conv_norm(b, "2", left, {.out = half}));
    }
    return channel_shuffle(b, concat(b, {left, shuffle_branch(b, x, half, stride)}, 1));
}

void shufflenet_v2(GraphBuilder& b, const ZooSettings& s) {
    Value x = image_input(b, s);
    x = relu(b, conv_norm(b, "conv1", x, {.out = 24, .kernel = {3}, .stride = {2}, .pad = {1}}));
    x = max_pool(b, x, {3}, {2}, {1});
    const Ints channels = {116, 232, 464};
    const Ints blocks = {4, 8, 4};
    for (size_t stage = 0; stage < channels.size(); ++stage) {
        const auto stage_scope = b.scope("stage" + std::to_string(stage + 2));
        for (int64_t i = 0; i < blocks[stage]; ++i) {
            const auto scope = b.scope(std::to_string(i));
            x = shuffle_unit(b, x, channels[stage], i == 0 ? 2 : 1);
        }
    }
    x = relu(b, conv_norm(b, "conv5", x, {.out = 1024}));
    b.output(gemm(b, "fc", reduce_mean(b, x, {2, 3}, false), 1000), "output");
}

}  // namespace

void add_mobile_classifiers(std::vector<Recipe>& recipes) {
    const std::vector<ZooOption> options = {batch_option(), size_option(224, 32, 4096), norm_option()};
    std::vector<ZooOption> scalable = options;
    scalable.push_back({"width", 100, 10, 400, "channels of every layer, in percent of the published ones"});
    scalable.push_back(number_option("in", 3, 1024, "channels of the image"));
    recipes.push_back(
        {"mobilenet_v2", "inverted residuals with depthwise convolutions, ReLU6", scalable, mobilenet_v2});
    recipes.push_back(
        {"efficientnet_b0", "inverted residuals with squeeze-and-excitation, SiLU", options, efficientnet_b0});
    recipes.push_back({"shufflenet_v2_x1_0", "split and shuffled channels", options, shufflenet_v2});
}

}  // namespace tilewright::nets
