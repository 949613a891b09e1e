// EfficientViT-B1 (Cai et al., 2022): convolutions, and attention that is linear in the number of pixels.

#include <string>

#include "driver/zoo/families.h"
#include "driver/zoo/layers.h"

namespace tilewright::nets {

namespace {

constexpr int64_t kHeadWidth = 16;

/// Depthwise 3x3, then 1x1.
Value separable(GraphBuilder& b, const Value& x, int64_t out, double gain) {
    const int64_t in = x.size(1);
    const Value y = hard_swish(b, conv_norm(b, "depth_conv", x, {.out = in, .kernel = {3}, .pad = {1}, .groups = in}));
    return conv_norm(b, "point_conv", y, {.out = out, .gain = gain});
}

/// 1x1 to four times the channels, depthwise 3x3, 1x1 back. `fewer_norms`: only the last of the three has batch
/// normalisation.
Value inverted_bottleneck(GraphBuilder& b, const Value& x, int64_t out, int64_t stride, bool fewer_norms, double gain) {
    const int64_t wide = 4 * x.size(1);
    const auto layer = fewer_norms ? conv : conv_norm;
    Value y = hard_swish(b, layer(b, "inverted_conv", x, {.out = wide}));
    y = hard_swish(
        b, layer(b, "depth_conv", y, {.out = wide, .kernel = {3}, .stride = {stride}, .pad = {1}, .groups = wide}));
    return conv_norm(b, "point_conv", y, {.out = out, .gain = gain});
}

/// out_i = sum_j relu(q_i) relu(k_j) v_j / sum_j relu(q_i) relu(k_j), as (v k^T) q, without a pixel-by-pixel matrix. A
/// row of ones below v yields the denominator from the same two products.
Value linear_attention(GraphBuilder& b, const Value& x) {
    const auto scope = b.scope("context_module");
    const int64_t channels = x.size(1);
    const int64_t heads = channels / kHeadWidth;
    const int64_t pixels = x.size(2) * x.size(3);
    const Value qkv = conv(b, "qkv", x, {.out = 3 * channels, .bias = false, .gain = 1});
    // The second scale: the same queries, keys and values aggregated over 5x5 pixels.
    Value wide = conv(b, "aggreg.0", qkv,
                      {.out = 3 * channels, .kernel = {5}, .pad = {2}, .groups = 3 * channels, .bias = false});
    wide = conv(b, "aggreg.1", wide, {.out = 3 * channels, .groups = 3 * heads, .bias = false});
    const Value both = reshape(b, concat(b, {qkv, wide}, 1), {x[0], 2 * heads, 3 * kHeadWidth, pixels});
    const Value q = relu(b, slice(b, both, 2, 0, kHeadWidth));
    const Value k = relu(b, slice(b, both, 2, kHeadWidth, 2 * kHeadWidth));
    const Value v =
        pad(b, slice(b, both, 2, 2 * kHeadWidth, 3 * kHeadWidth), {0, 0, 0, 0}, {0, 0, 1, 0}, "constant", 1);
    const Value sums = matmul(b, matmul(b, v, transpose(b, k, {0, 1, 3, 2})), q);
    const Value numerator = slice(b, sums, 2, 0, kHeadWidth);
    const Value denominator = add(b, slice(b, sums, 2, kHeadWidth, kHeadWidth + 1), b.scalar(1e-15f));
    Value out = div(b, numerator, denominator);
    out.mean = 0;
    out.variance = 0.05;
    out = reshape(b, out, {x[0], 2 * channels, x[2], x[3]}, x);
    return conv_norm(b, "proj", out, {.out = channels, .gain = kBranchGain});
}

void efficientvit_b1(GraphBuilder& b, const ZooSettings& s) {
    Value x = image_input(b, s);
    x = hard_swish(b, conv_norm(b, "stem.conv", x, {.out = 16, .kernel = {3}, .stride = {2}, .pad = {1}}));
    {
        const auto scope = b.scope("stem.block");
        x = add(b, separable(b, x, 16, kBranchGain), x);
    }
    const Ints widths = {32, 64, 128, 256};
    const Ints depths = {2, 3, 3, 4};
    for (size_t stage = 0; stage < widths.size(); ++stage) {
        const auto stage_scope = b.scope("stages." + std::to_string(stage));
        const bool attends = stage >= 2;
        if (attends) {
            const auto scope = b.scope("down");
            x = inverted_bottleneck(b, x, widths[stage], 2, true, 1);
        }
        for (int64_t i = 0; i < depths[stage]; ++i) {
            const auto scope = b.scope(std::to_string(i));
            if (attends) {
                x = add(b, linear_attention(b, x), x);
                const auto local = b.scope("local_module");
                x = add(b, inverted_bottleneck(b, x, widths[stage], 1, true, kBranchGain), x);
            } else if (i == 0) {
                x = inverted_bottleneck(b, x, widths[stage], 2, false, 1);
            } else {
                x = add(b, inverted_bottleneck(b, x, widths[stage], 1, false, kBranchGain), x);
            }
        }
    }
    const auto head = b.scope("head");
    x = hard_swish(b, conv_norm(b, "conv", x, {.out = 1536}));
    x = gemm(b, "fc1", flatten(b, global_average_pool(b, x)), 1600, {.bias = false});
    x = hard_swish(b, layer_norm(b, "norm", x, 1e-5f));
    b.output(gemm(b, "fc2", x, 1000), "output");
}

}  // namespace

void add_efficientvit(std::vector<Recipe>& recipes) {
    recipes.push_back({"efficientvit_b1",
                       "convolutions and multi-scale linear attention with a ReLU kernel",
                       {batch_option(), size_option(224, 32, 4096), norm_option()},
                       efficientvit_b1});
}

}  // namespace tilewright::nets
