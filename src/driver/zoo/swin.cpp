// Swin transformer, tiny (Liu et al., 2021), as in torchvision: attention inside windows of 7x7 tokens, which every
// second block shifts by half a window.

#include "base/error.h"
#include "driver/zoo/families.h"
#include "driver/zoo/layers.h"

namespace tilewright::nets {

namespace {

constexpr int64_t kWindow = 7;
constexpr int64_t kTokens = kWindow * kWindow;
constexpr int64_t kOffsets = 2 * kWindow - 1;  // distances between two tokens of a window, along one axis

/// For each pair of a window's tokens the row of the bias table, given by their distance, [49 * 49].
Tensor relative_positions() {
    Ints index;
    for (int64_t i = 0; i < kTokens; ++i) {
        for (int64_t j = 0; j < kTokens; ++j) {
            const int64_t down = i / kWindow - j / kWindow + kWindow - 1;
            const int64_t right = i % kWindow - j % kWindow + kWindow - 1;
            index.push_back(down * kOffsets + right);
        }
    }
    return Tensor::of_i64(index);
}

/// After a cyclic shift a window at the border contains tokens from opposite sides of the image: -100 masks attention
/// between them. [1, windows, 1, 49, 49].
Tensor shift_mask(int64_t size, int64_t shift) {
    // The three bands along an axis: unaffected windows, the last window's own tokens, and the wrapped ones.
    const auto band = [&](int64_t i) { return i < size - kWindow ? 0 : i < size - shift ? 1 : 2; };
    const int64_t windows = size / kWindow;
    Tensor mask(DType::F32, {1, windows * windows, 1, kTokens, kTokens});
    int64_t at = 0;
    for (int64_t w = 0; w < windows * windows; ++w) {
        const auto region = [&](int64_t token) {
            const int64_t row = w / windows * kWindow + token / kWindow;
            const int64_t col = w % windows * kWindow + token % kWindow;
            return band(row) * 3 + band(col);
        };
        for (int64_t i = 0; i < kTokens; ++i) {
            for (int64_t j = 0; j < kTokens; ++j) mask.set(at++, region(i) == region(j) ? 0.0f : -100.0f);
        }
    }
    return mask;
}

/// x[i] -> x[(i + by) mod n] on `axis`.
Value roll(GraphBuilder& b, const Value& x, int64_t axis, int64_t by) {
    return concat(b, {slice(b, x, axis, by, INT64_MAX), slice(b, x, axis, 0, by)}, axis);
}

Value window_attention(GraphBuilder& b, const Value& input, int64_t heads, int64_t shift) {
    const auto scope = b.scope("attn");
    const int64_t side = input.size(1);
    const int64_t windows = side / kWindow;
    const int64_t width = input.size(3);
    const int64_t d = width / heads;
    Value x = input;
    if (shift > 0) x = roll(b, roll(b, x, 1, shift), 2, shift);
    x = transpose(b, reshape(b, x, {x[0], windows, kWindow, windows, kWindow, width}), {0, 1, 3, 2, 4, 5});
    const Extent rows = input[0] * Extent(windows * windows);
    x = reshape(b, x, {rows, kTokens, width}, input);

    Value qkv = linear(b, "qkv", x, 3 * width, {.gain = kQueryGain});
    qkv = transpose(b, reshape(b, qkv, {rows, kTokens, 3, heads, d}, input), {2, 0, 3, 1, 4});
    const Value q = gather_one(b, qkv, 0, 0);
    const Value k = gather_one(b, qkv, 0, 1);
    const Value v = gather_one(b, qkv, 0, 2);

    const Value table = b.weight("relative_position_bias_table", {kOffsets * kOffsets, heads}, Draw{0, 0.5});
    const Value index = b.constant(relative_positions());
    Value bias = b.node("Gather", {table, index}, {{"axis", 0}}, Extents{kTokens * kTokens, heads});
    bias = unsqueeze(b, transpose(b, reshape(b, bias, {kTokens, kTokens, heads}), {2, 0, 1}), {0});
    const auto mask = [&](const Value& scores) {
        Value biased = add(b, scores, bias);
        if (shift == 0) return biased;
        const Extents split = {input[0], windows * windows, heads, kTokens, kTokens};
        const Value masked = add(b, reshape(b, biased, split, input), b.constant(shift_mask(side, shift)));
        return reshape(b, masked, {rows, heads, kTokens, kTokens}, input);
    };
    x = transpose(b, attend(b, q, transpose(b, k, {0, 1, 3, 2}), v, mask), {0, 2, 1, 3});
    x = linear(b, "proj", reshape(b, x, {rows, kTokens, width}, input), width, {.gain = kBranchGain});

    x = reshape(b, x, {input[0], windows, windows, kWindow, kWindow, width}, input);
    x = reshape(b, transpose(b, x, {0, 1, 3, 2, 4, 5}), input.shape, input);
    if (shift > 0) x = roll(b, roll(b, x, 1, side - shift), 2, side - shift);
    return x;
}

/// [batch, h, w, c] -> [batch, h/2, w/2, 2c].
Value merge_patches(GraphBuilder& b, const Value& x) {
    const auto corner = [&](int64_t row, int64_t col) {
        return slice(b, slice(b, x, 1, row, INT64_MAX, 2), 2, col, INT64_MAX, 2);
    };
    const Value four = concat(b, {corner(0, 0), corner(1, 0), corner(0, 1), corner(1, 1)}, 3);
    return linear(b, "reduction", layer_norm(b, "norm", four, 1e-5f), 2 * x.size(3), {.bias = false});
}

void swin_t(GraphBuilder& b, const ZooSettings& s) {
    const int64_t size = s.at("size");
    if (size % (32 * kWindow) != 0) {
        model_error(
            "zoo model 'swin_t': size must be a multiple of {} (windows of {} after halving it five times), found {}",
            32 * kWindow, kWindow, size);
    }
    const Ints depths = {2, 2, 6, 2};
    Value x = conv(b, "features.0.0", image_input(b, s), {.out = 96, .kernel = {4}, .stride = {4}});
    x = layer_norm(b, "features.0.2", transpose(b, x, {0, 2, 3, 1}), 1e-5f);
    for (size_t stage = 0; stage < depths.size(); ++stage) {
        const int64_t heads = int64_t{3} << stage;
        if (stage > 0) {
            const auto scope = b.scope("features." + std::to_string(2 * stage));
            x = merge_patches(b, x);
        }
        for (int64_t block = 0; block < depths[stage]; ++block) {
            const auto scope = b.scope("features." + std::to_string(2 * stage + 1) + "." + std::to_string(block));
            // One window covers the whole feature map of the last stage: no shift.
            const int64_t shift = block % 2 == 1 && x.size(1) > kWindow ? kWindow / 2 : 0;
            x = add(b, x, window_attention(b, layer_norm(b, "norm1", x, 1e-5f), heads, shift));
            const Value inner = gelu(b, linear(b, "mlp.0", layer_norm(b, "norm2", x, 1e-5f), 4 * x.size(3)));
            x = add(b, x, linear(b, "mlp.3", inner, x.size(3), {.gain = kBranchGain}));
        }
    }
    x = reduce_mean(b, layer_norm(b, "norm", x, 1e-5f), {1, 2}, false);
    b.output(gemm(b, "head", x, 1000), "output");
}

}  // namespace

void add_swin_transformers(std::vector<Recipe>& recipes) {
    recipes.push_back({"swin_t",
                       "attention in shifted windows of 7x7 tokens, four stages",
                       {batch_option(), size_option(224, 224, 1120)},
                       swin_t});
}

}  // namespace tilewright::nets
