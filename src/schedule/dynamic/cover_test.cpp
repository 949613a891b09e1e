#include "schedule/dynamic/cover.h"

#include <gmock/gmock.h>

#include <limits>

namespace tilewright::dynamic {
namespace {

using ::testing::ElementsAre;

constexpr double kNever = std::numeric_limits<double>::infinity();

TEST(Cover, OneWayThatIsFastestEverywhereIsEnough) {
    const Cover c = cover_samples({{1, 2, 3}, {2, 3, 4}}, {1, 1, 1}, {1, 1});
    EXPECT_THAT(c.ways, ElementsAre(0));
    EXPECT_EQ(c.worst_loss, 0);
}

TEST(Cover, EachSampleKeepsAFastWay) {
    const Cover c = cover_samples({{1, 9}, {9, 1}}, {1, 1}, {1, 1});
    EXPECT_THAT(c.ways, ElementsAre(0, 1));
}

TEST(Cover, AWayThatIsSecondEverywhereReplacesSpecialOnesWithinTheLimits) {
    // Way 3 loses 2 % at every sample, which is within 3 % in the mean and 10 % at worst.
    const std::vector<std::vector<double>> seconds{{1, 9, 9}, {9, 1, 9}, {9, 9, 1}, {1.02, 1.02, 1.02}};
    const Cover c = cover_samples(seconds, {1, 1, 1}, {1, 1, 1, 1});
    EXPECT_THAT(c.ways, ElementsAre(3));
    EXPECT_GE(c.votes, 2u);
    EXPECT_NEAR(c.mean_loss, 0.02, 1e-9);
}

TEST(Cover, ALossBeyondTheLimitsIsNotTaken) {
    const std::vector<std::vector<double>> seconds{{1, 9, 9}, {9, 1, 9}, {9, 9, 1}, {1.2, 1.02, 1.02}};
    EXPECT_THAT(cover_samples(seconds, {1, 1, 1}, {1, 1, 1, 1}).ways, ElementsAre(0, 1, 2));
}

TEST(Cover, AnIllegalWayGetsNoVote) {
    EXPECT_THAT(cover_samples({{1, kNever}, {2, 2}}, {1, 1}, {1, 1}).ways, ElementsAre(0, 1));
}

TEST(Cover, ASampleThatTakesNoTimeIsCovered) {
    // Of a sample with an empty tensor, only the second way takes 0 s.
    EXPECT_THAT(cover_samples({{1, 1}, {2, 0}}, {1, 1}, {1, 1}).ways, ElementsAre(0, 1));
    EXPECT_THAT(cover_samples({{1, 0}, {1, 0}}, {1, 1}, {1, 1}).ways, ElementsAre(0));
}

TEST(Cover, ASampleWithoutWeightIsCovered) {
    EXPECT_THAT(cover_samples({{1, 9}, {9, 1}}, {1, 0}, {1, 1}).ways, ElementsAre(0, 1));
}

TEST(Cover, OfEquallyFastWaysTheSmallerCodeIsKept) {
    EXPECT_THAT(cover_samples({{1, 1}, {1.001, 1.001}}, {1, 1}, {4, 1}).ways, ElementsAre(1));
}

}  // namespace
}  // namespace tilewright::dynamic
