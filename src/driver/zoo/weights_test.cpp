#include "driver/zoo/weights.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"

namespace tilewright::nets {
namespace {

std::vector<float> drawn(const std::string& name, uint64_t seed, const Draw& draw, size_t n) {
    std::vector<float> out(n);
    draw_normal(name, seed, draw, out);
    return out;
}

uint64_t hash_of(const std::vector<float>& values) {
    return hash_text({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}

double mean_of(std::span<const float> v) {
    return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
}

double deviation_of(std::span<const float> v) {
    const double mean = mean_of(v);
    double squares = 0;
    for (float x : v) squares += (x - mean) * (x - mean);
    return std::sqrt(squares / static_cast<double>(v.size()));
}

TEST(DrawNormal, HasTheSameBitsOnEveryMachine) {
    // Reference values. A different value means that every model of the zoo has changed.
    EXPECT_EQ(hash_of(drawn("conv1.weight", 0, Draw{}, 10000)), 7097363506264550578u);
    EXPECT_EQ(hash_of(drawn("conv1.weight", 7, Draw{0.5, 0.25, 100, true}, 10000)), 10211919138914000610u);
}

TEST(DrawNormal, DependsOnNameSeedAndPositionAlone) {
    const std::vector<float> a = drawn("a", 1, Draw{}, 5000);
    EXPECT_EQ(drawn("a", 1, Draw{}, 5000), a);
    EXPECT_NE(drawn("b", 1, Draw{}, 5000), a);
    EXPECT_NE(drawn("a", 2, Draw{}, 5000), a);
    const std::vector<float> shorter = drawn("a", 1, Draw{}, 1234);
    EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), a.begin()));
}

TEST(DrawNormal, IsNearlyNormal) {
    const std::vector<float> v = drawn("w", 0, Draw{2, 3}, 200000);
    EXPECT_NEAR(mean_of(v), 2, 0.03);
    EXPECT_NEAR(deviation_of(v), 3, 0.03);
    const auto within = std::count_if(v.begin(), v.end(), [](float x) { return std::abs(x - 2) < 3; });
    EXPECT_NEAR(static_cast<double>(within) / static_cast<double>(v.size()), 0.683, 0.02);  // 0.6827 of a normal one
    for (float x : v) ASSERT_LT(std::abs(x - 2), 3 * 3.47);
}

TEST(DrawNormal, LowestKeepsVariancesPositive) {
    Draw draw{1, 1};
    draw.lowest = 0.25;
    const std::vector<float> v = drawn("running_var", 0, draw, 1000);
    EXPECT_EQ(*std::min_element(v.begin(), v.end()), 0.25f);
}

TEST(DrawNormal, RefusesRowsThatDoNotFit) {
    std::vector<float> out(10);
    EXPECT_THROW(draw_normal("w", 0, Draw{0, 1, 3}, out), InternalError);
    EXPECT_THROW(draw_normal("w", 0, Draw{0, 1, 1, true}, out), InternalError);
}

RC_GTEST_PROP(DrawNormal, RowsHaveExactlyTheRequestedDeviation, ()) {
    const auto row = *rc::gen::inRange<int64_t>(2, 600);
    const auto rows = *rc::gen::inRange<int64_t>(1, 8);
    const bool centred = *rc::gen::arbitrary<bool>();
    const uint64_t seed = *rc::gen::arbitrary<uint64_t>();
    const std::vector<float> v = drawn("w", seed, Draw{0, 0.125, row, centred}, static_cast<size_t>(row * rows));
    for (int64_t r = 0; r < rows; ++r) {
        const std::span<const float> one(v.data() + r * row, static_cast<size_t>(row));
        const double square = std::inner_product(one.begin(), one.end(), one.begin(), 0.0) / static_cast<double>(row);
        RC_ASSERT(std::abs(std::sqrt(square) - 0.125) < 1e-6);
        if (centred) RC_ASSERT(std::abs(mean_of(one)) < 1e-7);
    }
}

RC_GTEST_PROP(Transposed, SwapsTheTwoIndices, ()) {
    const auto rows = *rc::gen::inRange<int64_t>(1, 70);
    const auto cols = *rc::gen::inRange<int64_t>(1, 70);
    std::vector<float> in(static_cast<size_t>(rows * cols));
    std::iota(in.begin(), in.end(), 0.0f);
    const std::vector<float> out = transposed(in, rows, cols);
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
            RC_ASSERT(out[static_cast<size_t>(c * rows + r)] == in[static_cast<size_t>(r * cols + c)]);
        }
    }
}

}  // namespace
}  // namespace tilewright::nets
