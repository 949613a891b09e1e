#include "tile/register_tile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tilewright {
namespace {

using testing::ElementsAre;

TEST(RestRungs, fit_few_points_exactly_and_many_nearly) {
    EXPECT_THAT(rest_rungs(3), ElementsAre(3));
    EXPECT_THAT(rest_rungs(4), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(rest_rungs(7), ElementsAre(1, 2, 3, 4, 5, 6, 7));
    EXPECT_THAT(rest_rungs(13), ElementsAre(1, 2, 3, 4, 5, 6, 8, 10, 13));
    for (int64_t tile = 4; tile <= 64; ++tile) {
        const std::vector<int64_t> rungs = rest_rungs(tile);
        EXPECT_EQ(rungs.back(), tile);
        for (size_t i = 1; i < rungs.size(); ++i) {
            ASSERT_LT(rungs[i - 1], rungs[i]) << tile;
            EXPECT_LE(rungs[i] - (rungs[i - 1] + 1), rungs[i] / 4) << tile;  // computed in vain, at most
        }
    }
}

TEST(SumChains, are_as_many_as_hide_the_latency_of_a_multiply_add) {
    EXPECT_EQ(sum_chains(1, 256), 4);
    EXPECT_EQ(sum_chains(2, std::nullopt), 4);
    EXPECT_EQ(sum_chains(4, 256), 2);
    EXPECT_EQ(sum_chains(5, 256), 1);
    EXPECT_EQ(sum_chains(26, 256), 1);
    EXPECT_EQ(sum_chains(1, 15), 1);
}

}  // namespace
}  // namespace tilewright
