#include "index/facts.h"
#include "index/axes_test.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

bool proved(std::vector<Expr> extents, Expr e, std::vector<Expr> facts) {
    return prove_nonnegative(e, Ranges::of_extents(extents), facts);
}

TEST(Facts, APaddedReadIsInsideWhereItIsValid) {
    // a convolution's window: element 2 i0 + i1 - 3 of 224, valid inside
    const Expr at = i0 * 2 + i1 - 3;
    EXPECT_FALSE(proved({112, 7}, at, {}));
    EXPECT_TRUE(proved({112, 7}, at, {at, Expr(223) - at}));
    EXPECT_TRUE(proved({112, 7}, Expr(223) - at, {at, Expr(223) - at}));
    EXPECT_FALSE(proved({112, 7}, Expr(222) - at, {at, Expr(223) - at}));
}

TEST(Facts, ATighterOrScaledConditionSuffices) {
    EXPECT_TRUE(proved({10, 10}, i0 - 1, {i0 - 3}));
    EXPECT_FALSE(proved({10, 10}, i0 - 3, {i0 - 1}));
    EXPECT_TRUE(proved({10, 10}, i0 * 2 - i1 * 2, {i0 - i1}));
    EXPECT_TRUE(proved({10, 10}, i0 - 2, {i0 - i1, i1 - 2}));
}

TEST(Facts, DivisionsAreOpened) {
    // transposed convolution: element (i0 - i1) // 2 of 7
    const Expr x = i0 - i1;
    EXPECT_TRUE(proved({14, 3}, floor_div(x, 2), {x}));
    EXPECT_TRUE(proved({14, 3}, Expr(6) - floor_div(x, 2), {x, Expr(13) - x}));
    EXPECT_FALSE(proved({14, 3}, Expr(5) - floor_div(x, 2), {x, Expr(13) - x}));
    EXPECT_TRUE(proved({n * 2, 3}, n - 1 - floor_div(x, 2), {x, n * 2 - 1 - x}));
}

TEST(Facts, MinimaAndMaximaAreOpened) {
    EXPECT_TRUE(proved({10, 10}, max(i0 - 4, i1 - 4), {i1 - 4}));
    EXPECT_FALSE(proved({10, 10}, min(i0 - 4, i1 - 4), {i1 - 4}));
    EXPECT_TRUE(proved({10, 10}, min(i0 - 4, i1 - 4), {i1 - 4, i0 - 5}));
}

TEST(Facts, SymbolicExtents) {
    EXPECT_TRUE(proved({n, 4}, n - i0 - i1, {n - i0 - 4}));
    EXPECT_FALSE(proved({n, 4}, n - i0 - i1, {n - i0 - 2}));
}

}  // namespace
}  // namespace tilewright
