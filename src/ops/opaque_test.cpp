#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/rule_test.h"

namespace tilewright::test {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> positions(const std::vector<float>& x, int64_t k, int64_t largest) {
    const auto n = static_cast<int64_t>(x.size());
    return run("TopK", {floats({n}, x), whole({1}, {k})}, {{"largest", largest}}, 17, {1}, 2)[1].to_ints();
}

TEST(TopK, TakesTheFirstOfEqualElements) {
    EXPECT_THAT(positions({1, 3, 3, 2, 3}, 2, 1), ElementsAre(1, 2));
    EXPECT_THAT(positions({1, 0, 3, 0, 0}, 3, 0), ElementsAre(1, 3, 4));
    EXPECT_THAT(positions({0.0F, -0.0F}, 2, 1), ElementsAre(0, 1));
}

TEST(TopK, OrdersNegativeNumbersInfinitiesAndNan) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    EXPECT_THAT(positions({-1, -kInf, NAN, kInf, -2}, 5, 1), ElementsAre(2, 3, 0, 4, 1));
}

TEST(TopK, WorksAlongAnyAxisWithADynamicCount) {
    const auto y = run("TopK", {whole({2, 3}, {5, 1, 9, 4, 7, 9}), whole({1}, {1})}, {{"axis", int64_t{0}}}, 17, {}, 2);
    EXPECT_EQ(y[0], whole({1, 3}, {5, 7, 9}));
    EXPECT_EQ(y[1], whole({1, 3}, {0, 1, 0}));
}

TEST(TopK, TakesItsCountFromAnAttributeInTheFirstOpsets) {
    EXPECT_EQ(run("TopK", {floats({3}, {1, 3, 2})}, {{"k", int64_t{2}}}, 1, {}, 2)[0], floats({2}, {3, 2}));
}

TEST(TopK, RejectsACountAboveTheExtent) { EXPECT_THROW(positions({1, 2}, 3, 1), ModelError); }

TEST(NonZero, ListsPositionsPerDimension) {
    EXPECT_EQ(run("NonZero", {floats({2, 2}, {1, 0, -1, 2})})[0], whole({2, 3}, {0, 1, 1, 0, 0, 1}));
    EXPECT_EQ(run("NonZero", {floats({2}, {0, 0})})[0].shape(), (Shape{1, 0}));
}

TEST(Compress, KeepsWhereTheConditionHolds) {
    const Tensor x = floats({3, 2}, {1, 2, 3, 4, 5, 6});
    EXPECT_EQ(run("Compress", {x, tensor<int64_t>(DType::Bool, {2}, {0, 1})}, {{"axis", int64_t{0}}})[0],
              floats({1, 2}, {3, 4}));
    EXPECT_EQ(run("Compress", {x, tensor<int64_t>(DType::Bool, {4}, {1, 0, 0, 1})})[0], floats({2}, {1, 4}));
}

TEST(Unique, SortsOrKeepsTheOrderOfAppearance) {
    const Tensor x = floats({6}, {2, 1, 1, 3, 4, 3});
    const auto sorted = run("Unique", {x}, {}, 17, {}, 4);
    EXPECT_EQ(sorted[0], floats({4}, {1, 2, 3, 4}));
    EXPECT_EQ(sorted[1], whole({4}, {1, 0, 3, 4}));
    EXPECT_EQ(sorted[2], whole({6}, {1, 0, 0, 2, 3, 2}));
    EXPECT_EQ(sorted[3], whole({4}, {2, 1, 2, 1}));
    const auto as_found = run("Unique", {x}, {{"sorted", int64_t{0}}}, 17, {}, 4);
    EXPECT_EQ(as_found[0], floats({4}, {2, 1, 3, 4}));
    EXPECT_EQ(as_found[2], whole({6}, {0, 1, 1, 2, 3, 2}));
    EXPECT_EQ(as_found[3], whole({4}, {1, 2, 2, 1}));
}

TEST(NonMaxSuppression, DropsBoxesThatOverlapABetterOne) {
    const Tensor boxes = floats({1, 3, 4}, {0, 0, 1, 1, 0, 0.1F, 1, 1.1F, 0, 10, 1, 11});
    const Tensor scores = floats({1, 1, 3}, {0.75F, 0.9F, 0.6F});
    const auto found = run("NonMaxSuppression", {boxes, scores, whole({1}, {3}), floats({1}, {0.5F})});
    EXPECT_EQ(found[0], whole({2, 3}, {0, 0, 1, 0, 0, 2}));
    EXPECT_EQ(run("NonMaxSuppression", {boxes, scores})[0].shape(), (Shape{0, 3}));
}

TEST(NonMaxSuppression, NeedsBoxesScoresAndSingleNumbers) {
    const Tensor boxes = floats({1, 1, 4}, {0, 0, 1, 1}), scores = floats({1, 1, 1}, {0.75F});
    EXPECT_THROW(run("NonMaxSuppression", {boxes}), ModelError);
    EXPECT_THROW(run("NonMaxSuppression", {boxes, scores, whole({0}, {})}), ModelError);
    EXPECT_THROW(run("NonMaxSuppression", {boxes, scores, whole({1}, {1}), floats({0}, {})}), ModelError);
}

TEST(Det, ExchangesRowsWhereThePivotIsZero) {
    EXPECT_THAT(numbers(run("Det", {floats({2, 2, 2}, {0, 1, 1, 0, 2, 0, 0, 3})})[0]), ElementsAre(-1, 6));
    EXPECT_EQ(run("Det", {floats({2, 2}, {1, 2, 2, 4})})[0].get(0), 0);
}

TEST(HannWindow, IsPeriodicByDefault) {
    const auto near = [](const Tensor& t) {
        std::vector<int64_t> quarters;
        for (int64_t i = 0; i < t.count(); ++i) quarters.push_back(std::llround(t.get(i) * 4));
        return quarters;
    };
    EXPECT_THAT(near(run("HannWindow", {whole({}, {4})})[0]), ElementsAre(0, 2, 4, 2));
    EXPECT_THAT(near(run("HannWindow", {whole({}, {5})}, {{"periodic", int64_t{0}}})[0]), ElementsAre(0, 2, 4, 2, 0));
}

}  // namespace
}  // namespace tilewright::test
