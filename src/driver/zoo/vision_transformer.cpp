// ViT-B/16 (Dosovitskiy et al., 2020), MLP-Mixer-S/16 (Tolstikhin et al., 2021).

#include "driver/zoo/families.h"
#include "driver/zoo/layers.h"

namespace tilewright::nets {

namespace {

constexpr int64_t kPatch = 16;

/// Image -> [batch, patches, width].
Value patches(GraphBuilder& b, const std::string& name, const Value& image, int64_t width) {
    Value x = conv(b, name, image, {.out = width, .kernel = {kPatch}, .stride = {kPatch}});
    x = reshape(b, x, {x[0], width, x.size(2) * x.size(3)});
    return transpose(b, x, {0, 2, 1});
}

Value self_attention(GraphBuilder& b, const Value& x, int64_t heads) {
    const auto scope = b.scope("self_attention");
    const int64_t width = x.size(2);
    // [batch, seq, 3, heads, d] -> [3, batch, heads, seq, d]
    Value all = linear(b, "in_proj", x, 3 * width, {.gain = kQueryGain});
    all = transpose(b, reshape(b, all, {x[0], x[1], 3, heads, width / heads}), {2, 0, 3, 1, 4});
    const Value q = gather_one(b, all, 0, 0);
    const Value k = gather_one(b, all, 0, 1);
    const Value v = gather_one(b, all, 0, 2);
    const Value context = transpose(b, attend(b, q, transpose(b, k, {0, 1, 3, 2}), v), {0, 2, 1, 3});
    return linear(b, "out_proj", reshape(b, context, x.shape, x), width, {.gain = kBranchGain});
}

void vit(GraphBuilder& b, const ZooSettings& s, int64_t layers, int64_t width, int64_t heads) {
    Value x = patches(b, "conv_proj", image_input(b, s), width);
    const Value token = b.weight("class_token", {1, 1, width}, Draw{0, 1});
    x = concat(b, {expand(b, token, {x[0], 1, width}, x), x}, 1);
    x = add(b, x, b.weight("encoder.pos_embedding", {1, x.size(1), width}, Draw{0, 0.5}));
    for (int64_t i = 0; i < layers; ++i) {
        const auto scope = b.scope("encoder.layers.encoder_layer_" + std::to_string(i));
        x = add(b, self_attention(b, layer_norm(b, "ln_1", x, 1e-6f), heads), x);
        const Value inner = gelu(b, linear(b, "mlp.0", layer_norm(b, "ln_2", x, 1e-6f), 4 * width));
        x = add(b, x, linear(b, "mlp.3", inner, width, {.gain = kBranchGain}));
    }
    x = layer_norm(b, "encoder.ln", x, 1e-6f);
    b.output(gemm(b, "heads.head", gather_one(b, x, 1, 0), 1000), "output");
}

Value mixer_mlp(GraphBuilder& b, const std::string& name, const Value& x, int64_t inner) {
    const auto scope = b.scope(name);
    return linear(b, "fc2", gelu(b, linear(b, "fc1", x, inner)), x.size(2), {.gain = kBranchGain});
}

void mlp_mixer_s16(GraphBuilder& b, const ZooSettings& s) {
    constexpr int64_t kWidth = 512;
    Value x = patches(b, "stem.proj", image_input(b, s), kWidth);
    for (int i = 0; i < 8; ++i) {
        const auto scope = b.scope("blocks." + std::to_string(i));
        const Value across = transpose(b, layer_norm(b, "norm1", x, 1e-6f), {0, 2, 1});
        x = add(b, x, transpose(b, mixer_mlp(b, "mlp_tokens", across, 256), {0, 2, 1}));
        x = add(b, x, mixer_mlp(b, "mlp_channels", layer_norm(b, "norm2", x, 1e-6f), 2048));
    }
    x = layer_norm(b, "norm", x, 1e-6f);
    b.output(gemm(b, "head", reduce_mean(b, x, {1}, false), 1000), "output");
}

}  // namespace

void add_vision_transformers(std::vector<Recipe>& recipes) {
    recipes.push_back({"vit_b_16",
                       "vision transformer: 16x16 patches, 12 layers, 768 wide",
                       {batch_option(), size_option(224, 32, 1024)},
                       [](GraphBuilder& b, const ZooSettings& s) { vit(b, s, 12, 768, 12); }});
    recipes.push_back({"vit_tiny_16",
                       "vision transformer: 16x16 patches, 12 layers, 192 wide",
                       {batch_option(), size_option(224, 32, 1024)},
                       [](GraphBuilder& b, const ZooSettings& s) { vit(b, s, 12, 192, 3); }});
    recipes.push_back({"mlp_mixer_s16",
                       "16x16 patches, products across tokens and across channels in turn",
                       {batch_option(), size_option(224, 32, 1024)},
                       mlp_mixer_s16});
}

}  // namespace tilewright::nets
