#include "driver/estimate_errors.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cost/target_with_test.h"
#include "schedule/default_schedule.h"

namespace tilewright {
namespace {

std::string kind(const std::string& stages) {
    return kind_of(default_schedule(parse_program("program p {\n" + stages + "}\n"), test::target_with()), {});
}

TEST(KindOfKernel, IsThatOfItsProducts) {
    EXPECT_EQ(kind(R"TW(  input x: f32[32, 64]
  input w: f32[64, 48]
  y: f32[32, 48] = [32, 48] sum(i2 < 64) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  output y
)TW"),
              "matrix product");
    EXPECT_EQ(kind(R"TW(  input x: f32[1, 64]
  input w: f32[64, 48]
  y: f32[1, 48] = [1, 48] sum(i2 < 64) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  output y
)TW"),
              "matrix-vector product");
    EXPECT_EQ(kind(R"TW(  input x: f32[8, 12, 12]
  input w: f32[16, 8, 3, 3]
  y: f32[16, 10, 10] = [16, 10, 10] sum(i3 < 8, i4 < 3, i5 < 3) mul(@0, @1) where @0 = x[i3, i1 + i4, i2 + i5], @1 = w[i0, i3, i4, i5]
  output y
)TW"),
              "convolution");
    EXPECT_EQ(kind(R"TW(  input x: f32[8, 12, 12]
  input w: f32[8, 3, 3]
  y: f32[8, 10, 10] = [8, 10, 10] sum(i3 < 3, i4 < 3) mul(@0, @1) where @0 = x[i0, i1 + i3, i2 + i4], @1 = w[i0, i3, i4]
  output y
)TW"),
              "depthwise convolution");
}

TEST(KindOfKernel, WithoutProductsIsThatOfTheWholeKernel) {
    EXPECT_EQ(kind(R"TW(  input x: f32[32, 64]
  y: f32[32] = [32] max(i1 < 64) @0 where @0 = x[i0, i1]
  output y
)TW"),
              "reduction");
    EXPECT_EQ(kind(R"TW(  input x: f32[32, 64]
  y: f32[32, 64] = [32, 64] exp(@0) where @0 = x[i0, i1]
  output y
)TW"),
              "element-wise");
    EXPECT_EQ(kind(R"TW(  input x: f32[32, 64]
  y: f32[64, 32] = [64, 32] @0 where @0 = x[i1, i0]
  output y
)TW"),
              "copy");
}

TEST(EstimateErrors, AreGeometricAndByKind) {
    const std::vector<KernelTime> kernels = {
        {"copy", "a", 10, 20}, {"copy", "b", 100, 50}, {"reduction", "c", 30, 30}, {"reduction", "d", 1, 4}};
    const std::vector<EstimateErrors> errors = estimate_errors(kernels, 5);
    ASSERT_EQ(errors.size(), 3U);
    EXPECT_EQ(errors[0].kind, "all");
    EXPECT_EQ(errors[0].kernels, 3U) << "d takes less than 5 us";
    EXPECT_NEAR(errors[0].error, std::pow(2.0, 2.0 / 3), 1e-9);
    EXPECT_EQ(errors[1].kind, "copy") << "more time";
    EXPECT_DOUBLE_EQ(errors[1].measured_us, 70);
    EXPECT_NEAR(errors[1].error, 2, 1e-9);
    EXPECT_NEAR(errors[1].bias, 1, 1e-9) << "too fast once, too slow once";
    EXPECT_EQ(errors[1].correlation, 0) << "of two kernels it says nothing";
    EXPECT_NEAR(errors[2].error, 1, 1e-9);
    EXPECT_TRUE(estimate_errors(kernels, 1000).empty());
}

TEST(EstimateErrors, CorrelateLogarithms) {
    const std::vector<KernelTime> kernels = {{"copy", "a", 10, 20}, {"copy", "b", 100, 200}, {"copy", "c", 1000, 2000}};
    EXPECT_NEAR(estimate_errors(kernels, 0)[0].correlation, 1, 1e-12);
    EXPECT_NEAR(estimate_errors(kernels, 0)[0].bias, 2, 1e-12);
}

}  // namespace
}  // namespace tilewright
