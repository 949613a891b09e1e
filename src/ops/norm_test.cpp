// Normalisations: folding, shapes of the statistics, groups.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ops/rule_test.h"

namespace tilewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace test;

Tensor ramp(Shape shape) {
    Tensor t(DType::F32, std::move(shape));
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, static_cast<double>((i * 7) % 11) - 4);
    return t;
}

/// Mean and mean square of the normalised numbers [first, first + count) with steps of `step`.
std::pair<double, double> moments(const Tensor& t, int64_t first, int64_t count, int64_t step = 1) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; ++i) {
        const double v = t.get(first + i * step);
        sum += v;
        squares += v * v;
    }
    return {sum / static_cast<double>(count), squares / static_cast<double>(count)};
}

TEST(BatchNormalization, with_constant_statistics_is_one_multiplication_and_addition) {
    const Program p = lower(model(graph({{"x", DType::F32, {"n", 2, 3}}},
                                        {node("BatchNormalization", {"x", "s", "b", "m", "v"}, {"y"})}, {"y"},
                                        {{"s", floats({2}, {1, 2})},
                                         {"b", floats({2}, {3, 4})},
                                         {"m", floats({2}, {5, 6})},
                                         {"v", floats({2}, {4, 9})}})));
    ASSERT_EQ(p.primitives.size(), 1U) << primitives(p);
    EXPECT_THAT(primitives(p), HasSubstr("add(mul(@0, @1), @2)"));
    const Tensor y = interpret(p, {floats({1, 2, 3}, {5, 7, 9, 6, 9, 12})}).front();
    EXPECT_THAT(numbers(y),
                ElementsAre(testing::DoubleNear(3, 1e-4), testing::DoubleNear(4, 1e-4), testing::DoubleNear(5, 1e-4),
                            testing::DoubleNear(4, 1e-4), testing::DoubleNear(6, 1e-4), testing::DoubleNear(8, 1e-4)));
}

TEST(BatchNormalization, in_training_uses_and_updates_the_batch_statistics) {
    const Tensor x = floats({2, 1, 2}, {1, 3, 5, 7}), one = floats({1}, {1}), zero = floats({1}, {0});
    const auto out = run("BatchNormalization", {x, one, zero, floats({1}, {10}), floats({1}, {1})},
                         {{"training_mode", int64_t{1}}, {"momentum", 0.75f}}, 15, {}, 3);
    EXPECT_NEAR(out[0].get(0), -3 / std::sqrt(5.0), 1e-4);
    EXPECT_NEAR(out[1].get(0), 10 * 0.75 + 4 * 0.25, 1e-6);
    EXPECT_NEAR(out[2].get(0), 1 * 0.75 + 5 * 0.25, 1e-6);
}

TEST(LayerNormalization, normalises_the_last_dimensions_and_returns_statistics) {
    const Tensor x = ramp({2, 3, 4}), ones = floats({3, 4}, std::vector<float>(12, 1));
    const auto out = run("LayerNormalization", {x, ones}, {{"axis", int64_t{1}}}, 17, {}, 3);
    for (int64_t n = 0; n < 2; ++n) {
        const auto [mean, square] = moments(out[0], n * 12, 12);
        EXPECT_NEAR(mean, 0, 1e-6);
        EXPECT_NEAR(square, 1, 1e-4);
        EXPECT_NEAR(out[1].get(n), moments(x, n * 12, 12).first, 1e-6);
    }
    EXPECT_EQ(out[1].shape(), (Shape{2, 1, 1}));
    EXPECT_EQ(out[2].shape(), (Shape{2, 1, 1}));
}

TEST(GroupNormalization, of_one_group_a_channel_is_instance_normalisation) {
    const Tensor x = ramp({2, 4, 3}), scale = floats({4}, {1, 2, 3, 4}), bias = floats({4}, {0, 1, 0, 1});
    const Tensor g = run("GroupNormalization", {x, scale, bias}, {{"num_groups", int64_t{4}}}, 21).front();
    const Tensor i = run("InstanceNormalization", {x, scale, bias}).front();
    ASSERT_EQ(g.shape(), i.shape());
    for (int64_t k = 0; k < g.count(); ++k) EXPECT_NEAR(g.get(k), i.get(k), 1e-5);
}

TEST(GroupNormalization, normalises_each_group_and_scales_channels_since_opset_21_groups_before) {
    const Tensor x = ramp({1, 4, 3});
    const Tensor y = run("GroupNormalization", {x, floats({4}, {1, 1, 1, 1}), floats({4}, {0, 0, 0, 5})},
                         {{"num_groups", int64_t{2}}}, 21)
                         .front();
    EXPECT_NEAR(moments(y, 0, 6).first, 0, 1e-6);
    EXPECT_NEAR(moments(y, 6, 6).first, 2.5, 1e-5);
    const Tensor old =
        run("GroupNormalization", {x, floats({2}, {1, 1}), floats({2}, {0, 5})}, {{"num_groups", int64_t{2}}}, 18)
            .front();
    EXPECT_NEAR(moments(old, 6, 6).first, 5, 1e-5);
}

TEST(GroupNormalization, keeps_dynamic_dimensions) {
    const Program p =
        lower(model(graph({{"x", DType::F32, {"n", 4, "h", "w"}}},
                          {node("GroupNormalization", {"x", "s", "b"}, {"y"}, {{"num_groups", int64_t{2}}})}, {"y"},
                          {{"s", floats({4}, {1, 1, 1, 1})}, {"b", floats({4}, {0, 0, 0, 0})}}, 21),
                    21));
    EXPECT_TRUE(verify(p).empty()) << verify(p).front();
    const Tensor y = interpret(p, {ramp({2, 4, 2, 3})}).front();
    EXPECT_NEAR(moments(y, 12, 12).first, 0, 1e-6);
}

TEST(RMSNormalization, divides_by_the_root_of_the_mean_square) {
    const Tensor y =
        run("RMSNormalization", {floats({1, 2}, {3, 4}), floats({2}, {1, 10})}, {{"epsilon", 0.0f}}, 23).front();
    EXPECT_NEAR(y.get(0), 3 / std::sqrt(12.5), 1e-6);
    EXPECT_NEAR(y.get(1), 40 / std::sqrt(12.5), 1e-5);
}

TEST(LpNormalization, keeps_zero_vectors) {
    const Tensor x = floats({2, 2}, {3, -4, 0, 0});
    EXPECT_THAT(numbers(run("LpNormalization", {x}, {{"p", int64_t{2}}}).front()),
                ElementsAre(testing::DoubleNear(0.6, 1e-7), testing::DoubleNear(-0.8, 1e-7), 0, 0));
}

TEST(LRN, sums_over_adjacent_channels_with_the_odd_one_after) {
    const Tensor x = floats({1, 4, 1}, {1, 2, 3, 4});
    const Tensor y = run("LRN", {x}, {{"size", int64_t{2}}, {"alpha", 2.0f}, {"beta", 1.0f}, {"bias", 1.0f}}).front();
    EXPECT_NEAR(y.get(0), 1.0 / (1 + 1 + 4), 1e-6);
    EXPECT_NEAR(y.get(3), 4.0 / (1 + 16), 1e-6);
}

}  // namespace
}  // namespace tilewright
