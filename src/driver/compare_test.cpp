#include "driver/compare.h"

#include <gtest/gtest.h>

#include <cmath>

#include <limits>

namespace tilewright {
namespace {

const float kNaN = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

Tensor floats(const std::vector<float>& v) { return Tensor::of(DType::F32, {static_cast<int64_t>(v.size())}, v); }

bool agree(const std::vector<float>& a, const std::vector<float>& b, const Tolerance& t = {}) {
    return compare(floats(a), floats(b), t, "y").ok;
}

TEST(Compare, AllowsRelativeAndAbsoluteDifferences) {
    EXPECT_TRUE(agree({1000.9f}, {1000}));
    EXPECT_FALSE(agree({1001.1f}, {1000}));
    EXPECT_TRUE(agree({5e-8f}, {0}));
    EXPECT_FALSE(agree({5e-7f}, {0}));
}

TEST(Compare, AllowsDifferencesRelativeToTheLargestMagnitude) {
    Tolerance t;
    t.max_relative = 1e-2;
    EXPECT_TRUE(agree({100, 0.9f}, {100, 0}, t));
    EXPECT_FALSE(agree({100, 1.1f}, {100, 0}, t));
    EXPECT_FALSE(agree({kInf, 1.1f}, {kInf, 0}, t)) << "an infinity is not a magnitude";
    EXPECT_TRUE(agree({5e-8f}, {0}, t)) << "the absolute tolerance holds where everything expected is 0";
    EXPECT_FALSE(agree({5e-7f}, {0}, t));
}

TEST(Compare, NaNsAndInfinitiesEqualThemselvesOnly) {
    EXPECT_TRUE(agree({kNaN, kInf, -kInf}, {kNaN, kInf, -kInf}));
    EXPECT_FALSE(agree({kNaN}, {1}));
    EXPECT_FALSE(agree({1}, {kNaN}));
    EXPECT_FALSE(agree({kInf}, {-kInf}));
    EXPECT_FALSE(agree({3e38f}, {kInf}));
    EXPECT_FALSE(agree({kInf}, {3e38f}));
}

TEST(Compare, IntegersAreComparedAsIntegers) {
    const int64_t big = int64_t{1} << 62;
    Tolerance exact;
    exact.relative = exact.absolute = 0;
    EXPECT_TRUE(compare(Tensor::of_i64({big + 1}), Tensor::of_i64({big + 1}), exact, "y").ok);
    EXPECT_FALSE(compare(Tensor::of_i64({big}), Tensor::of_i64({big + 1}), exact, "y").ok) << "equal as doubles";
    EXPECT_EQ(compare(Tensor::of_i64({big}), Tensor::of_i64({big + 1}), {}, "y").max_difference, 1);
    EXPECT_EQ(compare(Tensor::of_i64({INT64_MAX}), Tensor::of_i64({INT64_MIN}), {}, "y").max_difference, 0x1p64);
}

TEST(Compare, ReportsPositionAndDifference) {
    const Tensor a = Tensor::of<int>(DType::F32, {2, 2}, {1, 2, 3, 5}),
                 b = Tensor::of<int>(DType::F32, {2, 2}, {1, 2, 4, 4});
    const Comparison c = compare(a, b, {}, "output 'y'");
    EXPECT_EQ(c.reason, "output 'y': element [1, 0] is 3, expected 4 (2 of 4 elements differ)");
    EXPECT_EQ(c.max_difference, 1);
    EXPECT_EQ(c.max_magnitude, 4);
    EXPECT_EQ(c.rms_difference, std::sqrt(0.5));  // two of four elements differ by one
    EXPECT_EQ(compare(a, floats({1, 2, 4, 4}), {}, "y").reason, "y: has shape [2, 2], expected [4]");
    EXPECT_EQ(compare(a, Tensor(DType::F64, {2, 2}), {}, "y").reason, "y: has type f32, expected f64");
}

}  // namespace
}  // namespace tilewright
