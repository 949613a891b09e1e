// ResNet (He et al., 2015), VGG (Simonyan and Zisserman, 2014) and DenseNet (Huang et al., 2016), as in torchvision.

#include "driver/zoo/families.h"
#include "driver/zoo/layers.h"

namespace tilewright::nets {

namespace {

/// The output of a residual branch has a quarter of a layer's usual variance, so that the sum stays bounded over many
/// blocks.

/// Two 3x3 convolutions.
Value basic_branch(GraphBuilder& b, const Value& x, int64_t width, int64_t stride) {
    const Value y = relu(b, conv_norm(b, "conv1", x, {.out = width, .kernel = {3}, .stride = {stride}, .pad = {1}}));
    return conv_norm(b, "conv2", y, {.out = width, .kernel = {3}, .pad = {1}, .gain = kBranchGain});
}

/// 1x1 down, 3x3 (with the stride), 1x1 up to four times the width.
Value bottleneck_branch(GraphBuilder& b, const Value& x, int64_t width, int64_t stride) {
    Value y = relu(b, conv_norm(b, "conv1", x, {.out = width}));
    y = relu(b, conv_norm(b, "conv2", y, {.out = width, .kernel = {3}, .stride = {stride}, .pad = {1}}));
    return conv_norm(b, "conv3", y, {.out = 4 * width, .gain = kBranchGain});
}

void resnet(GraphBuilder& b, const ZooSettings& s, const Ints& depths, bool bottleneck) {
    Value x = image_input(b, s);
    x = relu(b, conv_norm(b, "conv1", x, {.out = 64, .kernel = {7}, .stride = {2}, .pad = {3}}));
    x = max_pool(b, x, {3}, {2}, {1});
    int64_t width = 64;
    for (size_t stage = 0; stage < depths.size(); ++stage, width *= 2) {
        const auto stage_scope = b.scope("layer" + std::to_string(stage + 1));
        for (int64_t block = 0; block < depths[stage]; ++block) {
            const auto scope = b.scope(std::to_string(block));
            const int64_t stride = block == 0 && stage > 0 ? 2 : 1;
            const Value branch =
                bottleneck ? bottleneck_branch(b, x, width, stride) : basic_branch(b, x, width, stride);
            const bool same = x.size(1) == branch.size(1) && stride == 1;
            const Value shortcut =
                same ? x : conv_norm(b, "downsample", x, {.out = branch.size(1), .stride = {stride}});
            x = relu(b, add(b, branch, shortcut));
        }
    }
    b.output(gemm(b, "fc", flatten(b, global_average_pool(b, x)), 1000), "output");
}

/// `plan`: output channels of 3x3 convolutions, 0 for a 2x2 max-pooling.
void vgg(GraphBuilder& b, const ZooSettings& s, const Ints& plan) {
    Value x = image_input(b, s);
    {
        const auto scope = b.scope("features");
        int layer = 0;
        for (int64_t channels : plan) {
            if (channels == 0) {
                x = max_pool(b, x, {2}, {2}, {0});
            } else {
                x = relu(b, conv(b, std::to_string(layer), x, {.out = channels, .kernel = {3}, .pad = {1}}));
            }
            ++layer;
        }
    }
    const auto scope = b.scope("classifier");
    x = flatten(b, x);
    x = relu(b, gemm(b, "0", x, 4096));
    x = relu(b, gemm(b, "3", x, 4096));
    b.output(gemm(b, "6", x, 1000), "output");
}

/// Every layer of a dense block reads the outputs of all layers before it.
void densenet(GraphBuilder& b, const ZooSettings& s, const Ints& depths) {
    constexpr int64_t kGrowth = 32;
    Value x = image_input(b, s);
    const auto features = b.scope("features");
    x = relu(b, conv_norm(b, "conv0", x, {.out = 64, .kernel = {7}, .stride = {2}, .pad = {3}}));
    x = max_pool(b, x, {3}, {2}, {1});
    for (size_t block = 0; block < depths.size(); ++block) {
        {
            const auto block_scope = b.scope("denseblock" + std::to_string(block + 1));
            for (int64_t layer = 0; layer < depths[block]; ++layer) {
                const auto scope = b.scope("denselayer" + std::to_string(layer + 1));
                Value y = relu(b, batch_norm(b, "norm1", x));
                y = relu(b, conv_norm(b, "conv1", y, {.out = 4 * kGrowth}));
                y = conv(b, "conv2", y, {.out = kGrowth, .kernel = {3}, .pad = {1}, .bias = false});
                x = concat(b, {x, y}, 1);
            }
        }
        if (block + 1 < depths.size()) {
            const auto scope = b.scope("transition" + std::to_string(block + 1));
            const Value y = relu(b, batch_norm(b, "norm", x));
            x = average_pool(b, conv(b, "conv", y, {.out = x.size(1) / 2, .bias = false}), {2}, {2}, {0});
        }
    }
    x = relu(b, batch_norm(b, "norm5", x));
    b.output(gemm(b, "classifier", flatten(b, global_average_pool(b, x)), 1000), "output");
}

Recipe classifier(const std::string& name, const std::string& description, int64_t lowest,
                  const std::function<void(GraphBuilder&, const ZooSettings&)>& build) {
    return {name, description, {batch_option(), size_option(224, lowest, 4096), norm_option()}, build};
}

}  // namespace

void add_image_classifiers(std::vector<Recipe>& recipes) {
    const auto add_resnet = [&](const std::string& name, const Ints& depths, bool bottleneck) {
        recipes.push_back(classifier(
            name, bottleneck ? "residual network of 1x1-3x3-1x1 blocks" : "residual network of 3x3-3x3 blocks", 32,
            [=](GraphBuilder& b, const ZooSettings& s) { resnet(b, s, depths, bottleneck); }));
    };
    add_resnet("resnet18", {2, 2, 2, 2}, false);
    add_resnet("resnet34", {3, 4, 6, 3}, false);
    add_resnet("resnet50", {3, 4, 6, 3}, true);
    add_resnet("resnet101", {3, 4, 23, 3}, true);
    // At 224 x 224 torchvision's adaptive pooling to 7 x 7 is the identity and is omitted; other sizes change fc 0.
    recipes.push_back({"vgg16",
                       "sixteen plain layers, 3x3 convolutions only",
                       {batch_option(), size_option(224, 32, 512)},
                       [](GraphBuilder& b, const ZooSettings& s) {
                           vgg(b, s, {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0});
                       }});
    recipes.push_back(classifier("densenet121", "densely connected blocks: long concatenations", 32,
                                 [](GraphBuilder& b, const ZooSettings& s) {
                                     densenet(b, s, {6, 12, 24, 16});
                                 }));
}

}  // namespace tilewright::nets
