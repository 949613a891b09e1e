#include "base/ids.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>

namespace tilewright {
namespace {

using AppleId = Id<struct AppleTag>;
using PearId = Id<struct PearTag>;

static_assert(!std::is_convertible_v<AppleId, PearId>);
static_assert(!std::is_constructible_v<PearId, AppleId>);
static_assert(!std::is_convertible_v<size_t, AppleId>);
static_assert(!std::is_convertible_v<AppleId, size_t>);
static_assert(!std::is_invocable_v<std::equal_to<>, AppleId, PearId>);
static_assert(sizeof(AppleId) == 4);

TEST(Id, IsNoneUntilGivenAnIndex) {
    EXPECT_FALSE(AppleId());
    EXPECT_TRUE(AppleId(0));
    EXPECT_EQ(AppleId(7).index(), 7U);
    EXPECT_NE(AppleId(), AppleId(0));
}

TEST(Id, OrdersByIndexAndComesLastWhenNone) {
    EXPECT_LT(AppleId(1), AppleId(2));
    EXPECT_LT(AppleId(2), AppleId());
    EXPECT_EQ(AppleId(3), AppleId(3));
}

TEST(Id, IsAKeyOfHashedSets) {
    const std::unordered_set<AppleId> set{AppleId(1), AppleId(2), AppleId(1)};
    EXPECT_EQ(set.size(), 2U);
    EXPECT_TRUE(set.contains(AppleId(2)));
    EXPECT_FALSE(set.contains(AppleId()));
}

TEST(IndexVector, HandsOutIdsInOrder) {
    IndexVector<AppleId, std::string> v;
    EXPECT_TRUE(v.empty());
    EXPECT_EQ(v.push_back("a"), AppleId(0));
    EXPECT_EQ(v.push_back("b"), AppleId(1));
    EXPECT_EQ(v.size(), 2U);
    EXPECT_EQ(v[AppleId(1)], "b");
    v[AppleId(1)] = "c";
    EXPECT_EQ(std::as_const(v)[AppleId(1)], "c");
    EXPECT_EQ(v.ids(), (std::vector{AppleId(0), AppleId(1)}));
}

TEST(IndexVector, ContainsItsOwnIds) {
    IndexVector<AppleId, int> v{10, 11};
    EXPECT_TRUE(v.contains(AppleId(1)));
    EXPECT_FALSE(v.contains(AppleId(2)));
    EXPECT_FALSE(v.contains(AppleId()));
    EXPECT_THROW(v[AppleId(2)], std::out_of_range);
    EXPECT_THROW(std::as_const(v)[AppleId()], std::out_of_range);
}

TEST(IndexVector, FillsIteratesAndResizes) {
    IndexVector<AppleId, int> v(3, 5);
    int sum = 0;
    for (int& x : v) sum += x++;
    EXPECT_EQ(sum, 15);
    v.resize(4);
    EXPECT_EQ(v[AppleId(2)], 6);
    EXPECT_EQ(v[AppleId(3)], 0);
}

TEST(IndexVector, HoldsMoveOnlyTypes) {
    IndexVector<AppleId, std::unique_ptr<int>> v;
    EXPECT_EQ(*v[v.push_back(std::make_unique<int>(4))], 4);
}

}  // namespace
}  // namespace tilewright
