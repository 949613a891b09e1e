// Networks with an image (or a map of labels) as output: fast style transfer (Johnson et al., 2016; the "candy" network
// of PyTorch's examples), SegFormer-B0 (Xie et al., 2021), U-Net (Ronneberger et al., 2015), the generator of DCGAN
// (Radford et al., 2015).

#include "driver/zoo/families.h"
#include "driver/zoo/layers.h"

namespace tilewright::nets {

namespace {

// --- fast style transfer

/// Reflection padding, which avoids artefacts at the borders, and a convolution without padding.
Value reflected_conv(GraphBuilder& b, const std::string& name, const Value& x, int64_t out, int64_t kernel,
                     int64_t stride) {
    const int64_t p = kernel / 2;
    const Value y = pad(b, x, {0, 0, p, p}, {0, 0, p, p}, "reflect");
    return conv(b, name, y, {.out = out, .kernel = {kernel}, .stride = {stride}});
}

void candy(GraphBuilder& b, const ZooSettings& s) {
    Value x = image_input(b, s);
    x = relu(b, instance_norm(b, "in1", reflected_conv(b, "conv1", x, 32, 9, 1)));
    x = relu(b, instance_norm(b, "in2", reflected_conv(b, "conv2", x, 64, 3, 2)));
    x = relu(b, instance_norm(b, "in3", reflected_conv(b, "conv3", x, 128, 3, 2)));
    for (int i = 1; i <= 5; ++i) {
        const auto scope = b.scope("res" + std::to_string(i));
        const Value y = relu(b, instance_norm(b, "in1", reflected_conv(b, "conv1", x, 128, 3, 1)));
        x = add(b, instance_norm(b, "in2", reflected_conv(b, "conv2", y, 128, 3, 1)), x);
    }
    x = reflected_conv(b, "deconv1", upsample_nearest(b, x, 2), 64, 3, 1);
    x = relu(b, instance_norm(b, "in4", x));
    x = reflected_conv(b, "deconv2", upsample_nearest(b, x, 2), 32, 3, 1);
    x = relu(b, instance_norm(b, "in5", x));
    b.output(reflected_conv(b, "deconv3", x, 3, 9, 1), "output");
}

// --- SegFormer

struct SegformerStage {
    int64_t width, heads, reduction, patch, stride;
};

/// [batch, c, h, w] -> [batch, h*w, c], and back.
Value to_tokens(GraphBuilder& b, const Value& x) {
    return transpose(b, reshape(b, x, {x[0], x[1], x.size(2) * x.size(3)}), {0, 2, 1});
}

Value to_image(GraphBuilder& b, const Value& x, int64_t height, int64_t width) {
    const Value y = transpose(b, x, {0, 2, 1});
    return reshape(b, y, {y[0], y[1], height, width});
}

/// Keys and values come from an image reduced by `reduction` in each direction.
Value reduced_attention(GraphBuilder& b, const Value& x, const SegformerStage& stage, int64_t height, int64_t width) {
    const auto scope = b.scope("attention");
    const Value q = linear(b, "self.query", x, stage.width, {.gain = kQueryGain});
    Value source = x;
    if (stage.reduction > 1) {
        const int64_t r = stage.reduction;
        const Value image =
            conv(b, "self.sr", to_image(b, x, height, width), {.out = stage.width, .kernel = {r}, .stride = {r}});
        source = layer_norm(b, "self.layer_norm", to_tokens(b, image), 1e-5f);
    }
    const Value k =
        split_heads(b, linear(b, "self.key", source, stage.width, {.gain = kQueryGain}), stage.heads, {0, 2, 3, 1});
    const Value v = split_heads(b, linear(b, "self.value", source, stage.width), stage.heads, {0, 2, 1, 3});
    const Value context = attend(b, split_heads(b, q, stage.heads, {0, 2, 1, 3}), k, v);
    const Value merged = reshape(b, transpose(b, context, {0, 2, 1, 3}), x.shape, x);
    return linear(b, "output.dense", merged, stage.width, {.gain = kBranchGain});
}

/// Linear, depthwise 3x3 over the image, GELU, linear.
Value mix_ffn(GraphBuilder& b, const Value& x, int64_t height, int64_t width) {
    const auto scope = b.scope("mlp");
    const int64_t inner = 4 * x.size(2);
    const Value wide = to_image(b, linear(b, "dense1", x, inner), height, width);
    const Value mixed = conv(b, "dwconv", wide, {.out = inner, .kernel = {3}, .pad = {1}, .groups = inner});
    return linear(b, "dense2", gelu(b, to_tokens(b, mixed)), x.size(2), {.gain = kBranchGain});
}

void segformer_b0(GraphBuilder& b, const ZooSettings& s) {
    constexpr int64_t kDecoder = 256;
    constexpr int64_t kLabels = 150;
    const std::vector<SegformerStage> stages = {
        {32, 1, 8, 7, 4}, {64, 2, 4, 3, 2}, {160, 5, 2, 3, 2}, {256, 8, 1, 3, 2}};
    Value image = image_input(b, s);
    std::vector<Value> features;
    for (size_t i = 0; i < stages.size(); ++i) {
        const auto stage_scope = b.scope("encoder." + std::to_string(i));
        const SegformerStage& stage = stages[i];
        image = conv(b, "patch_embeddings.proj", image,
                     {.out = stage.width, .kernel = {stage.patch}, .stride = {stage.stride}, .pad = {stage.patch / 2}});
        const int64_t height = image.size(2);
        const int64_t width = image.size(3);
        Value x = layer_norm(b, "patch_embeddings.layer_norm", to_tokens(b, image), 1e-5f);
        for (int block = 0; block < 2; ++block) {
            const auto scope = b.scope("block." + std::to_string(block));
            x = add(b, reduced_attention(b, layer_norm(b, "layer_norm_1", x, 1e-5f), stage, height, width), x);
            x = add(b, mix_ffn(b, layer_norm(b, "layer_norm_2", x, 1e-5f), height, width), x);
        }
        image = to_image(b, layer_norm(b, "layer_norm", x, 1e-5f), height, width);
        features.push_back(image);
    }
    const auto head = b.scope("decode_head");
    std::vector<Value> maps;
    for (size_t i = features.size(); i-- > 0;) {
        const Value& f = features[i];
        const Value y = linear(b, "linear_c." + std::to_string(i), to_tokens(b, f), kDecoder);
        const Value map = to_image(b, y, f.size(2), f.size(3));
        maps.push_back(i == 0 ? map : upsample_linear(b, map, features[0].size(2) / f.size(2)));
    }
    const Value fused = relu(b, conv_norm(b, "linear_fuse", concat(b, maps, 1), {.out = kDecoder}));
    b.output(conv(b, "classifier", fused, {.out = kLabels}), "logits");
}

// --- U-Net

Value double_conv(GraphBuilder& b, const std::string& name, const Value& x, int64_t out) {
    const auto scope = b.scope(name);
    const Value y = relu(b, conv_norm(b, "0", x, {.out = out, .kernel = {3}, .pad = {1}}));
    return relu(b, conv_norm(b, "3", y, {.out = out, .kernel = {3}, .pad = {1}}));
}

void unet(GraphBuilder& b, const ZooSettings& s) {
    constexpr int kLevels = 4;
    Value x = double_conv(b, "inc", image_input(b, s), 64);
    std::vector<Value> skips;
    for (int i = 1; i <= kLevels; ++i) {
        skips.push_back(x);
        x = double_conv(b, "down" + std::to_string(i), max_pool(b, x, {2}, {2}, {0}), 2 * x.size(1));
    }
    for (int i = 1; i <= kLevels; ++i) {
        const int64_t width = x.size(1) / 2;
        const std::string name = "up" + std::to_string(i);
        const Value up = conv_transpose(b, name + ".up", x, {.out = width, .kernel = {2}, .stride = {2}});
        x = double_conv(b, name + ".conv", concat(b, {skips.back(), up}, 1), width);
        skips.pop_back();
    }
    b.output(conv(b, "outc", x, {.out = 1}), "output");
}

// --- DCGAN

void dcgan_generator(GraphBuilder& b, const ZooSettings& s) {
    Value x = b.input("noise", DType::F32, {batch_extent(s), 100, 1, 1});
    const Ints widths = {512, 256, 128, 64};
    for (size_t i = 0; i < widths.size(); ++i) {
        const std::string layer = "main." + std::to_string(3 * i);
        x = conv_transpose(
            b, layer, x,
            {.out = widths[i], .kernel = {4}, .stride = {i == 0 ? 1 : 2}, .pad = {i == 0 ? 0 : 1}, .bias = false});
        x = relu(b, batch_norm(b, "main." + std::to_string(3 * i + 1), x));
    }
    x = conv_transpose(b, "main.12", x, {.out = 3, .kernel = {4}, .stride = {2}, .pad = {1}, .bias = false});
    b.output(tanh(b, x), "image");
}

}  // namespace

void add_image_to_image_models(std::vector<Recipe>& recipes) {
    ZooOption by_four = size_option(224, 16, 4096);
    recipes.push_back({"candy",
                       "fast style transfer: reflection padding, instance normalisation, nearest up-sampling",
                       {batch_option(), by_four},
                       candy});
    recipes.push_back({"segformer_b0",
                       "semantic segmentation: hierarchical transformer with reduced keys, all-MLP head",
                       {batch_option(), size_option(512, 64, 2048), norm_option()},
                       segformer_b0});
    recipes.push_back({"unet",
                       "segmentation with skip connections: 4 levels, 64 to 1024 channels",
                       {batch_option(), size_option(256, 32, 2048), norm_option()},
                       unet});
    recipes.push_back({"dcgan_generator",
                       "transposed convolutions, 100 numbers to a 64x64 image",
                       {batch_option()},
                       dcgan_generator});
}

}  // namespace tilewright::nets
