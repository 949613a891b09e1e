#include "tile/register_tile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tilewright {
namespace {

using testing::ElementsAre;

TEST(TailSizes, fit_few_points_exactly_and_many_nearly) {
    EXPECT_THAT(tail_sizes(1), ElementsAre(1));
    EXPECT_THAT(tail_sizes(3), ElementsAre(1, 2, 3));
    EXPECT_THAT(tail_sizes(4), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(tail_sizes(7), ElementsAre(1, 2, 3, 4, 5, 6, 7));
    EXPECT_EQ(tail_sizes(14).size(), 14u);
    EXPECT_THAT(tail_sizes(24), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 24));
    for (int64_t tile = 4; tile <= 64; ++tile) {
        const std::vector<int64_t> sizes = tail_sizes(tile);
        EXPECT_EQ(sizes.back(), tile);
        for (size_t i = 1; i < sizes.size(); ++i) {
            ASSERT_LT(sizes[i - 1], sizes[i]) << tile;
            EXPECT_LE(sizes[i] - (sizes[i - 1] + 1), sizes[i] / 4) << tile;  // redundant points
        }
    }
}

TEST(HalfTailSizes, fit_halves) {
    EXPECT_THAT(half_tail_sizes(1), ElementsAre(1));
    EXPECT_THAT(half_tail_sizes(2), ElementsAre(1));
    EXPECT_THAT(half_tail_sizes(3), ElementsAre(1, 2));
    EXPECT_THAT(half_tail_sizes(13), ElementsAre(1, 2, 3, 4, 5, 6, 7));
    EXPECT_THAT(half_tail_sizes(40), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20));
}

TEST(BetweenLanes, are_points_that_the_result_has_between_those_of_the_vector_axis) {
    TensorExpr e;
    e.extents = {8, 4, 225};
    e.spatial = 3;
    EXPECT_FALSE(between_lanes(e, 2, 1)) << "no output index: row-major";
    e.output_index = {axis(0), 4 * axis(2) + axis(1)};
    EXPECT_TRUE(between_lanes(e, 2, 1));
    EXPECT_FALSE(between_lanes(e, 1, 2)) << "lanes adjoin";
    EXPECT_FALSE(between_lanes(e, 2, 0));
    e.output_index = {axis(0), 5 * axis(2) + axis(1)};
    EXPECT_FALSE(between_lanes(e, 2, 1)) << "others are between them as well";
}

TEST(TailStep, gives_two_halves_or_whole_tiles) {
    EXPECT_EQ(tail_step(7, 7), 7);
    EXPECT_EQ(tail_step(8, 7), 4);
    EXPECT_EQ(tail_step(13, 7), 7);  // and 6
    EXPECT_EQ(tail_step(13, 4), 4);  // three times, and 1
    for (int64_t tile = 2; tile <= 40; ++tile)
        for (int64_t tail = 1; tail < tile; ++tail)
            EXPECT_LE(tail - tail_step(tail, half_tail_sizes(tile).back()), tail / 2);
}

TEST(Accumulators, are_as_many_as_hide_the_latency_of_a_multiply_add) {
    EXPECT_EQ(accumulators_for(256).per_sum(1), 4);
    EXPECT_EQ(accumulators_for(std::nullopt).per_sum(2), 4);
    EXPECT_EQ(accumulators_for(256).per_sum(4), 2);
    EXPECT_EQ(accumulators_for(256).per_sum(5), 1);
    EXPECT_EQ(accumulators_for(256).per_sum(26), 1);
    EXPECT_EQ(accumulators_for(15).per_sum(1), 1);
}

}  // namespace
}  // namespace tilewright
