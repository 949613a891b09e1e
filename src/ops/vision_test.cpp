#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/rule_test.h"

namespace tilewright::test {
namespace {

using ::testing::ElementsAre;

std::vector<double> sampled(const std::vector<float>& places, const std::string& mode, const std::string& padding) {
    const auto n = static_cast<int64_t>(places.size());
    std::vector<float> grid;
    for (const float x : places) grid.insert(grid.end(), {x, 0});
    return numbers(run("GridSample", {floats({1, 1, 1, 4}, {1, 2, 3, 4}), floats({1, 1, n, 2}, grid)},
                       {{"mode", mode}, {"padding_mode", padding}}, 20)[0]);
}

TEST(GridSample, InterpolatesInsideAndPadsOutside) {
    // -1 is the left edge of the first of four elements, whose centre is at -0.75.
    EXPECT_THAT(sampled({-0.75F, -0.5F, 0.75F}, "linear", "zeros"), ElementsAre(1, 1.5, 4));
    EXPECT_THAT(sampled({-1, 1}, "linear", "zeros"), ElementsAre(0.5, 2));
    EXPECT_THAT(sampled({-1, 5}, "linear", "border"), ElementsAre(1, 4));
    EXPECT_THAT(sampled({-1.25F, 1.75F}, "linear", "reflection"), ElementsAre(1, 3));
    EXPECT_THAT(sampled({-0.3F, 0.3F}, "nearest", "zeros"), ElementsAre(2, 3));
}

TEST(AffineGrid, OfTheIdentityReturnsEveryCentre) {
    const auto grid = run("AffineGrid", {floats({1, 2, 3}, {1, 0, 0, 0, 1, 0}), whole({4}, {1, 1, 1, 2})}, {}, 20, {1});
    EXPECT_EQ(grid[0], floats({1, 1, 2, 2}, {-0.5F, 0, 0.5F, 0}));
}

TEST(RoiAlign, OfAWholeImageIsItsMean) {
    const Tensor x = floats({1, 1, 2, 2}, {1, 2, 3, 6});
    const auto y = run("RoiAlign", {x, floats({1, 4}, {0, 0, 2, 2}), whole({1}, {0})},
                       {{"output_height", int64_t{1}}, {"output_width", int64_t{1}}, {"sampling_ratio", int64_t{2}}});
    EXPECT_EQ(y[0], floats({1, 1, 1, 1}, {3}));
}

TEST(DeformConv, WithoutOffsetsIsAConvolution) {
    std::vector<float> image, weights;
    for (int k = 0; k < 2 * 4 * 4; ++k) image.push_back(static_cast<float>(k % 7));
    for (int k = 0; k < 3 * 2 * 2 * 2; ++k) weights.push_back(static_cast<float>(k % 5) - 2);
    const Tensor x = floats({1, 2, 4, 4}, image), w = floats({3, 2, 2, 2}, weights);
    EXPECT_EQ(run("DeformConv", {x, w, floats({1, 8, 3, 3}, std::vector<float>(72))}, {}, 19)[0],
              run("Conv", {x, w})[0]);
}

TEST(Col2Im, AddsWherePatchesOverlap) {
    const auto y =
        run("Col2Im", {floats({1, 2, 3}, {1, 2, 3, 4, 5, 6}), whole({2}, {1, 4}), whole({2}, {1, 2})}, {}, 18, {1, 2});
    EXPECT_EQ(y[0], floats({1, 1, 1, 4}, {1, 6, 8, 6}));
}

TEST(RoiAlign, WithTooManySamplesIsRejectedBeforeItStarts) {
    const auto samples = [](int64_t n) {
        return run("RoiAlign", {floats({1, 1, 2, 2}, {1, 2, 3, 4}), floats({1, 4}, {0, 0, 2, 2}), whole({1}, {0})},
                   {{"sampling_ratio", n}});
    };
    EXPECT_NO_THROW(samples(4));
    EXPECT_THROW(samples(int64_t{1} << 30), ModelError);
}

}  // namespace
}  // namespace tilewright::test
