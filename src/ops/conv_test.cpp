// Convolutions against their definition, point by point, and the primitives they are lowered to.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

#include "ops/rule_test.h"

namespace tilewright {
namespace {

using testing::HasSubstr;
using namespace test;

Tensor small_integers(Shape shape, unsigned seed) {
    Tensor t(DType::F32, std::move(shape));
    std::mt19937 random(seed);
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, static_cast<double>(static_cast<int64_t>(random() % 17) - 8));
    return t;
}

/// One spatial axis of the random layers.
struct ConvAxis {
    int64_t in, kernel, stride, dilation, before, after;
};

ConvAxis random_conv_axis() {
    ConvAxis a{};
    a.kernel = *rc::gen::inRange<int64_t>(1, 5);
    a.stride = *rc::gen::inRange<int64_t>(1, 4);
    a.dilation = *rc::gen::inRange<int64_t>(1, 3);
    a.before = *rc::gen::inRange<int64_t>(0, 3);
    a.after = *rc::gen::inRange<int64_t>(0, 3);
    const int64_t reach = (a.kernel - 1) * a.dilation + 1;
    a.in = std::max<int64_t>(1, reach - a.before - a.after) + *rc::gen::inRange<int64_t>(0, 5);
    return a;
}

std::map<std::string, Attribute> attributes(const ConvAxis& h, const ConvAxis& w, int64_t groups) {
    return {{"strides", ints({h.stride, w.stride})},
            {"dilations", ints({h.dilation, w.dilation})},
            {"pads", ints({h.before, w.before, h.after, w.after})},
            {"group", groups}};
}

RC_GTEST_PROP(Conv, is_the_sum_over_channels_and_window, ()) {
    const ConvAxis h = random_conv_axis(), w = random_conv_axis();
    const int64_t groups = *rc::gen::inRange<int64_t>(1, 4), ci = *rc::gen::inRange<int64_t>(1, 3);
    const int64_t oi = *rc::gen::inRange<int64_t>(1, 3), n = 2;
    const Tensor x = small_integers({n, groups * ci, h.in, w.in}, 1),
                 k = small_integers({groups * oi, ci, h.kernel, w.kernel}, 2);
    const Tensor bias = small_integers({groups * oi}, 3);
    const Tensor y = run("Conv", {x, k, bias}, attributes(h, w, groups), 11, {1, 2}).front();
    const int64_t oh = (h.in + h.before + h.after - (h.kernel - 1) * h.dilation - 1) / h.stride + 1;
    const int64_t ow = (w.in + w.before + w.after - (w.kernel - 1) * w.dilation - 1) / w.stride + 1;
    RC_ASSERT(y.shape() == (Shape{n, groups * oi, oh, ow}));
    for (int64_t at = 0; at < y.count(); ++at) {
        const int64_t ox = at % ow, oy = at / ow % oh, o = at / ow / oh % (groups * oi), b = at / ow / oh / groups / oi;
        double sum = bias.get(o);
        for (int64_t c = 0; c < ci; ++c)
            for (int64_t ky = 0; ky < h.kernel; ++ky)
                for (int64_t kx = 0; kx < w.kernel; ++kx) {
                    const int64_t iy = oy * h.stride + ky * h.dilation - h.before;
                    const int64_t ix = ox * w.stride + kx * w.dilation - w.before;
                    if (iy < 0 || iy >= h.in || ix < 0 || ix >= w.in) continue;
                    sum += x.get(((b * groups * ci + o / oi * ci + c) * h.in + iy) * w.in + ix) *
                           k.get(((o * ci + c) * h.kernel + ky) * w.kernel + kx);
                }
        RC_ASSERT(y.get(at) == sum);
    }
}

RC_GTEST_PROP(ConvTranspose, scatters_every_input_over_its_window, ()) {
    ConvAxis h = random_conv_axis(), w = random_conv_axis();
    const int64_t groups = *rc::gen::inRange<int64_t>(1, 4), ci = *rc::gen::inRange<int64_t>(1, 3);
    const auto oi = *rc::gen::element<int64_t>(1, 2, 16);  // residues are channels, or separate convolutions
    const int64_t eh = *rc::gen::inRange<int64_t>(0, h.stride), ew = *rc::gen::inRange<int64_t>(0, w.stride);
    const int64_t oh = (h.in - 1) * h.stride + eh + (h.kernel - 1) * h.dilation + 1 - h.before - h.after;
    const int64_t ow = (w.in - 1) * w.stride + ew + (w.kernel - 1) * w.dilation + 1 - w.before - w.after;
    RC_PRE(oh > 0 && ow > 0);
    const Tensor x = small_integers({1, groups * ci, h.in, w.in}, 1),
                 k = small_integers({groups * ci, oi, h.kernel, w.kernel}, 2);
    auto attrs = attributes(h, w, groups);
    attrs["output_padding"] = ints({eh, ew});
    const std::vector<size_t> known = *rc::gen::element(std::vector<size_t>{}, std::vector<size_t>{1});
    const Tensor y = run("ConvTranspose", {x, k}, attrs, 11, known).front();
    RC_ASSERT(y.shape() == (Shape{1, groups * oi, oh, ow}));
    Tensor want(DType::F64, y.shape());
    for (int64_t c = 0; c < groups * ci; ++c)
        for (int64_t o = 0; o < oi; ++o)
            for (int64_t iy = 0; iy < h.in; ++iy)
                for (int64_t ix = 0; ix < w.in; ++ix)
                    for (int64_t ky = 0; ky < h.kernel; ++ky)
                        for (int64_t kx = 0; kx < w.kernel; ++kx) {
                            const int64_t oy = iy * h.stride + ky * h.dilation - h.before;
                            const int64_t ox = ix * w.stride + kx * w.dilation - w.before;
                            if (oy < 0 || oy >= oh || ox < 0 || ox >= ow) continue;
                            const int64_t at = ((c / ci * oi + o) * oh + oy) * ow + ox;
                            want.set(at, want.get(at) + x.get((c * h.in + iy) * w.in + ix) *
                                                            k.get(((c * oi + o) * h.kernel + ky) * w.kernel + kx));
                        }
    RC_ASSERT(numbers(y) == numbers(want));
}

/// Conv(x [2, 4, 8, 8], w) as text.
std::string written(const std::string& op, Shape weights, const std::map<std::string, Attribute>& attrs) {
    return primitives(lower(model(graph({{"x", DType::F32, {2, 4, 8, 8}}}, {node(op, {"x", "w"}, {"y"}, attrs)}, {"y"},
                                        {{"w", small_integers(std::move(weights), 1)}}))));
}

TEST(Conv, is_one_product_of_two_accesses_with_the_padding_as_conditions_of_the_first) {
    const std::string text = written("Conv", {5, 4, 3, 3}, {{"pads", ints({1, 1, 1, 1})}});
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
    EXPECT_THAT(text, HasSubstr("mul(@0, @1)"));
    EXPECT_THAT(text, HasSubstr("w[i1, i4, i5, i6]"));
}

TEST(Conv, of_one_by_one_is_a_matrix_product_without_conditions) {
    const std::string text = written("Conv", {5, 4, 1, 1}, {});
    EXPECT_THAT(text, HasSubstr("x[i0, i4, i2, i3]"));
    EXPECT_THAT(text, HasSubstr("w[i1, i4, 0, 0]"));
    EXPECT_THAT(text, testing::Not(HasSubstr("if")));
}

TEST(Conv, that_is_depthwise_sums_over_the_window_only) {
    const std::string text = written("Conv", {4, 1, 3, 3}, {{"group", int64_t{4}}});
    EXPECT_THAT(text, HasSubstr("x[i0, i1, i2 + i4, i3 + i5]"));
    EXPECT_THAT(text, HasSubstr("w[i1, 0, i4, i5]"));
}

TEST(ConvTranspose, with_constant_weights_is_a_convolution_and_one_view) {
    const std::string text =
        written("ConvTranspose", {4, 3, 4, 4}, {{"strides", ints({2, 2})}, {"pads", ints({1, 1, 1, 1})}});
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
    EXPECT_THAT(text, HasSubstr("mul(@0, @1)"));
}

TEST(ConvTranspose, of_many_channels_skips_outputs_removed_by_padding) {
    const std::map<std::string, Attribute> half = {{"strides", ints({2, 2})}, {"pads", ints({1, 1, 1, 1})}};
    // 8 x 8 to 16 x 16: for each residue an 8 x 8 result of 2 x 2 taps.
    EXPECT_THAT(written("ConvTranspose", {4, 16, 4, 4}, half),
                HasSubstr("[2, 2, 2, 16, 8, 8] sum(i6 < 4, i7 < 2, i8 < 2)"));
    // With few channels the residues are adjacent channels, for 9 x 9 positions.
    EXPECT_THAT(written("ConvTranspose", {4, 3, 4, 4}, half), HasSubstr("[2, 12, 9, 9]"));
}

TEST(Conv, keeps_dynamic_dimensions) {
    const Program p = lower(model(
        graph({{"x", DType::F32, {"n", 3, "h", "w"}}},
              {node("Conv", {"x", "k"}, {"y"}, {{"auto_pad", std::string("SAME_UPPER")}, {"strides", ints({2, 2})}})},
              {"y"}, {{"k", small_integers({4, 3, 3, 3}, 2)}})));
    EXPECT_TRUE(verify(p).empty()) << verify(p).front();
    for (const int64_t size : {5, 8}) {
        const Tensor x = small_integers({2, 3, size, size + 1}, 3);
        const Tensor free = interpret(p, {x}).front();
        const Tensor fixed = run("Conv", {x, small_integers({4, 3, 3, 3}, 2)},
                                 {{"auto_pad", std::string("SAME_UPPER")}, {"strides", ints({2, 2})}}, 17, {1})
                                 .front();
        EXPECT_EQ(free.shape(), (Shape{2, 4, (size + 1) / 2, (size + 2) / 2}));
        EXPECT_EQ(free, fixed);
    }
}

TEST(Conv, rejects_mismatched_shapes) {
    const auto refusal = [](Shape x, Shape w, std::map<std::string, Attribute> attrs) -> std::string {
        try {
            run("Conv", {small_integers(std::move(x), 1), small_integers(std::move(w), 2)}, std::move(attrs));
        } catch (const ModelError& e) {
            return e.what();
        }
        return "accepted";
    };
    EXPECT_THAT(refusal({1, 4, 5, 5}, {2, 3, 3, 3}, {}),
                HasSubstr("4 input channels in 1 groups do not fit weights of shape [2, 3, 3, 3]"));
    EXPECT_THAT(refusal({1, 4, 2, 2}, {2, 4, 3, 3}, {}), HasSubstr("does not fit into a padded dimension of 2"));
    EXPECT_THAT(refusal({1, 4, 5, 5}, {2, 4, 3, 3}, {{"pads", ints({1, 1})}}), HasSubstr("attribute 'pads' has 2"));
    EXPECT_THAT(refusal({1, 4, 5, 5}, {3, 2, 3, 3}, {{"group", int64_t{2}}}),
                HasSubstr("3 output channels do not divide into 2 groups"));
    EXPECT_THAT(refusal({1, 4, 5, 5}, {3, 4, 3, 3}, {{"strides", ints({0, 1})}}), HasSubstr("not a size"));
}

TEST(ConvTranspose, refuses_dilations_that_are_nearly_all_zeros) {
    const std::vector<Tensor> inputs = {small_integers({1, 3, 6}, 1), small_integers({3, 4, 3}, 2)};
    const auto with = [&](int64_t dilation) {
        return run("ConvTranspose", inputs, {{"strides", ints({3})}, {"dilations", ints({dilation})}})[0].shape()[2];
    };
    EXPECT_EQ(with(64), 5 * 3 + 2 * 64 + 1);
    EXPECT_THROW(with(int64_t{1} << 20), ModelError);
}

TEST(CausalConvWithState, in_two_calls_equals_one_call) {
    const Tensor x = small_integers({2, 3, 6}, 1), w = small_integers({3, 1, 4}, 2);
    const auto piece = [&](int64_t from, int64_t count) {
        Tensor t(DType::F32, {2, 3, count});
        for (int64_t i = 0; i < t.count(); ++i) t.set(i, x.get(i / count * 6 + from + i % count));
        return t;
    };
    const auto step = [&](const Tensor& part, const std::optional<Tensor>& state) {
        std::vector<In> in = {{"x", DType::F32, {2, 3, part.shape()[2]}}, {"w", DType::F32, {3, 1, 4}}};
        std::vector<Tensor> given = {part, w};
        if (state) {
            in.push_back({"s", DType::F32, {2, 3, 3}});
            given.push_back(*state);
        }
        Graph g = graph(in, {node("CausalConvWithState", {"x", "w", "", state ? "s" : ""}, {"y", "z"})}, {"y", "z"});
        return interpret(lower(model(std::move(g), 27)), given);
    };
    const std::vector<Tensor> all = step(x, {}), first = step(piece(0, 2), {}), second = step(piece(2, 4), first[1]);
    for (int64_t row = 0; row < 6; ++row)
        for (int64_t k = 0; k < 6; ++k)
            EXPECT_EQ(all[0].get(row * 6 + k), k < 2 ? first[0].get(row * 2 + k) : second[0].get(row * 4 + k - 2));
    EXPECT_EQ(all[1], second[1]);
}

}  // namespace
}  // namespace tilewright
