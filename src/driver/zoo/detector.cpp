// YOLOX-nano (Ge et al., 2021) and YOLOv4 (Bochkovskiy et al., 2020), without the decoding of boxes.

#include <functional>

#include "base/error.h"
#include "driver/zoo/families.h"
#include "driver/zoo/layers.h"

namespace tilewright::nets {

namespace {

constexpr double kDetectorShift = 0.4;  // for about a hundred layers, many without a shortcut

/// The three pools of spatial pyramid pooling.
std::vector<Value> pyramid(GraphBuilder& b, const Value& x) {
    return {max_pool(b, x, {5}, {1}, {2}), max_pool(b, x, {9}, {1}, {4}), max_pool(b, x, {13}, {1}, {6})};
}

// --- YOLOX

Value base_conv(GraphBuilder& b, const std::string& name, const Value& x, int64_t out, int64_t kernel = 1,
                double gain = 1) {
    return silu(
        b, conv_norm(b, name, x,
                     {.out = out, .kernel = {kernel}, .pad = {kernel / 2}, .gain = gain, .shift = kDetectorShift}));
}

/// Depthwise, then 1x1.
Value depthwise_conv(GraphBuilder& b, const std::string& name, const Value& x, int64_t out, int64_t stride,
                     double gain = 1) {
    const auto scope = b.scope(name);
    const int64_t in = x.size(1);
    const Value y = silu(
        b,
        conv_norm(b, "dconv", x,
                  {.out = in, .kernel = {3}, .stride = {stride}, .pad = {1}, .groups = in, .shift = kDetectorShift}));
    return base_conv(b, "pconv", y, out, 1, gain);
}

/// Half of the channels pass through `count` bottlenecks, the other half bypasses them.
Value csp_layer(GraphBuilder& b, const std::string& name, const Value& x, int64_t out, int count, bool shortcut) {
    const auto scope = b.scope(name);
    const int64_t half = out / 2;
    Value deep = base_conv(b, "conv1", x, half);
    const Value flat = base_conv(b, "conv2", x, half);
    for (int i = 0; i < count; ++i) {
        const auto block = b.scope("m." + std::to_string(i));
        const Value y = depthwise_conv(b, "conv2", base_conv(b, "conv1", deep, half), half, 1);
        deep = shortcut ? add(b, y, deep) : y;
    }
    return base_conv(b, "conv3", concat(b, {deep, flat}, 1), out);
}

/// Every second pixel in both directions, concatenated: [c, h, w] -> [4c, h/2, w/2].
Value focus(GraphBuilder& b, const Value& x) {
    const auto corner = [&](int64_t row, int64_t col) {
        return slice(b, slice(b, x, 2, row, INT64_MAX, 2), 3, col, INT64_MAX, 2);
    };
    return concat(b, {corner(0, 0), corner(1, 0), corner(0, 1), corner(1, 1)}, 1);
}

Value decoupled_head(GraphBuilder& b, const std::string& name, const Value& feature, int64_t classes) {
    constexpr int64_t kWidth = 64;
    const auto scope = b.scope(name);
    const Value stem = base_conv(b, "stem", feature, kWidth);
    Value kind = depthwise_conv(b, "cls_convs.0", stem, kWidth, 1);
    kind = depthwise_conv(b, "cls_convs.1", kind, kWidth, 1);
    Value box = depthwise_conv(b, "reg_convs.0", stem, kWidth, 1);
    box = depthwise_conv(b, "reg_convs.1", box, kWidth, 1);
    const Value scores = sigmoid(b, conv(b, "cls_pred", kind, {.out = classes}));
    const Value corners = conv(b, "reg_pred", box, {.out = 4});
    const Value object = sigmoid(b, conv(b, "obj_pred", box, {.out = 1}));
    const Value all = concat(b, {corners, object, scores}, 1);
    return reshape(b, all, {all[0], all[1], all.size(2) * all.size(3)});
}

void yolox_nano(GraphBuilder& b, const ZooSettings& s) {
    constexpr int64_t kClasses = 80;
    Value x = image_input(b, s);
    Value p3, p4, p5;  // strides 8, 16, 32
    {
        const auto backbone = b.scope("backbone.backbone");
        x = base_conv(b, "stem.conv", focus(b, x), 16, 3);
        x = csp_layer(b, "dark2.1", depthwise_conv(b, "dark2.0", x, 32, 2), 32, 1, true);
        p3 = csp_layer(b, "dark3.1", depthwise_conv(b, "dark3.0", x, 64, 2), 64, 3, true);
        p4 = csp_layer(b, "dark4.1", depthwise_conv(b, "dark4.0", p3, 128, 2), 128, 3, true);
        x = depthwise_conv(b, "dark5.0", p4, 256, 2);
        x = base_conv(b, "dark5.1.conv1", x, 128);
        std::vector<Value> scales = {x};
        for (const Value& pool : pyramid(b, x)) scales.push_back(pool);
        x = base_conv(b, "dark5.1.conv2", concat(b, scales, 1), 256);
        p5 = csp_layer(b, "dark5.2", x, 256, 1, false);
    }
    std::vector<Value> features;
    {
        const auto neck = b.scope("backbone");
        const Value top = base_conv(b, "lateral_conv0", p5, 128);
        const Value mid = csp_layer(b, "C3_p4", concat(b, {upsample_nearest(b, top, 2), p4}, 1), 128, 1, false);
        const Value low = base_conv(b, "reduce_conv1", mid, 64);
        const Value n3 = csp_layer(b, "C3_p3", concat(b, {upsample_nearest(b, low, 2), p3}, 1), 64, 1, false);
        const Value down3 = depthwise_conv(b, "bu_conv2", n3, 64, 2);
        const Value n4 = csp_layer(b, "C3_n3", concat(b, {down3, low}, 1), 128, 1, false);
        const Value down4 = depthwise_conv(b, "bu_conv1", n4, 128, 2);
        features = {n3, n4, csp_layer(b, "C3_n4", concat(b, {down4, top}, 1), 256, 1, false)};
    }
    std::vector<Value> heads;
    for (size_t i = 0; i < features.size(); ++i) {
        heads.push_back(decoupled_head(b, "head." + std::to_string(i), features[i], kClasses));
    }
    b.output(transpose(b, concat(b, heads, 2), {0, 2, 1}), "output");
}

// --- YOLOv4

using Activation = Value (*)(GraphBuilder&, const Value&);

/// Convolution, batch normalisation, activation, numbered in the order of the original's files.
class Darknet {
  public:
    Darknet(GraphBuilder& b, Activation activation) : b_(b), activation_(activation) {}

    Value layer(const Value& x, int64_t out, int64_t kernel, int64_t stride = 1, double gain = 1) {
        const ConvSpec spec = {.out = out,
                               .kernel = {kernel},
                               .stride = {stride},
                               .pad = {kernel / 2},
                               .gain = gain,
                               .shift = kDetectorShift};
        return activation_(b_, conv_norm(b_, next(), x, spec));
    }
    /// A prediction: bias, no normalisation, no activation.
    Value plain(const Value& x, int64_t out) { return conv(b_, next(), x, {.out = out}); }
    /// `count` layers that alternate 1x1 to `out` and 3x3 to twice that.
    Value alternate(Value x, int64_t out, int count) {
        for (int i = 0; i < count; ++i) x = i % 2 == 0 ? layer(x, out, 1) : layer(x, 2 * out, 3);
        return x;
    }

  private:
    std::string next() { return "conv" + std::to_string(++count_); }

    GraphBuilder& b_;
    Activation activation_;
    int count_ = 0;
};

/// A stage of CSPDarknet53: halves the resolution, then half of the channels pass through `count` residual blocks. The
/// first stage keeps all its channels in both halves and narrows inside its block.
Value csp_stage(GraphBuilder& b, const Value& x, int64_t out, int count, bool first) {
    Darknet net(b, mish);
    const int64_t half = first ? out : out / 2;
    const Value down = net.layer(x, out, 3, 2);
    const Value flat = net.layer(down, half, 1);
    Value deep = net.layer(down, half, 1);
    for (int i = 0; i < count; ++i) {
        const Value narrow = net.layer(deep, first ? half / 2 : half, 1);
        deep = add(b, net.layer(narrow, half, 3, 1, 0.7), deep);
    }
    deep = net.layer(deep, half, 1);
    return net.layer(concat(b, {deep, flat}, 1), out, 1);
}

void yolov4(GraphBuilder& b, const ZooSettings& s) {
    const int64_t predictions = 3 * (5 + s.at("classes"));
    Value x = image_input(b, s);
    std::vector<Value> stages;
    {
        const auto scope = b.scope("stem");
        x = Darknet(b, mish).layer(x, 32, 3);
    }
    const Ints widths = {64, 128, 256, 512, 1024};
    const Ints blocks = {1, 2, 8, 8, 4};
    for (size_t i = 0; i < widths.size(); ++i) {
        const auto scope = b.scope("down" + std::to_string(i + 1));
        x = csp_stage(b, x, widths[i], static_cast<int>(blocks[i]), i == 0);
        stages.push_back(x);
    }
    Value fine, middle, coarse;
    {
        const auto scope = b.scope("neek");
        Darknet net(b, leaky_relu);
        x = net.alternate(x, 512, 3);
        std::vector<Value> scales = pyramid(b, x);
        scales.push_back(x);
        coarse = net.alternate(concat(b, scales, 1), 512, 3);
        const Value up = upsample_nearest(b, net.layer(coarse, 256, 1), 2);
        middle = net.alternate(concat(b, {net.layer(stages[3], 256, 1), up}, 1), 256, 5);
        const Value up2 = upsample_nearest(b, net.layer(middle, 128, 1), 2);
        fine = net.alternate(concat(b, {net.layer(stages[2], 128, 1), up2}, 1), 128, 5);
    }
    const auto scope = b.scope("head");
    Darknet net(b, leaky_relu);
    const Value small = net.plain(net.layer(fine, 256, 3), predictions);
    middle = net.alternate(concat(b, {net.layer(fine, 256, 3, 2), middle}, 1), 256, 5);
    const Value medium = net.plain(net.layer(middle, 512, 3), predictions);
    coarse = net.alternate(concat(b, {net.layer(middle, 512, 3, 2), coarse}, 1), 512, 5);
    const Value large = net.plain(net.layer(coarse, 1024, 3), predictions);
    b.output(small, "stride8");
    b.output(medium, "stride16");
    b.output(large, "stride32");
}

}  // namespace

void add_detectors(std::vector<Recipe>& recipes) {
    const ZooOption size = {"size", 416, 64, 4096, "height and width of the image, a multiple of 32"};
    const auto whole = [](const char* name, void (*build)(GraphBuilder&, const ZooSettings&)) {
        return [=](GraphBuilder& b, const ZooSettings& s) {
            if (s.at("size") % 32 != 0) {
                model_error(
                    "zoo model '{}': size must be a multiple of 32 (the feature maps are joined after halving it five "
                    "times), found {}",
                    name, s.at("size"));
            }
            build(b, s);
        };
    };
    recipes.push_back(
        {"yolox_nano",
         "object detection: depthwise convolutions, SiLU, pyramid pooling, feature pyramid, decoupled heads",
         {batch_option(), size, norm_option()},
         whole("yolox_nano", yolox_nano)});
    recipes.push_back({"yolov4",
                       "object detection: CSPDarknet53 with Mish, pyramid pooling, path aggregation",
                       {batch_option(), size, norm_option(), number_option("classes", 80, 10000, "classes of objects")},
                       whole("yolov4", yolov4)});
}

}  // namespace tilewright::nets
