// Sizes that are unknown at compile time.

#include "program/analysis/dynamic.h"

#include <gtest/gtest.h>

#include <vector>

namespace tilewright {
namespace {

Expr sized(const char* name) { return symbol(name); }

TEST(AssumedExtent, IsTheSameForEverySymbol) {
    EXPECT_EQ(assumed_extent(sized("batch")), kAssumedExtent);
    EXPECT_EQ(assumed_extent(sized("seq")), kAssumedExtent);
    EXPECT_EQ(assumed_extent(Expr(7)), 7);
}

TEST(AssumedExtent, FollowsTheArithmeticOfDimensions) {
    EXPECT_EQ(assumed_value(floor_div(sized("h") * 3, 32) + 1), kAssumedExtent * 3 / 32 + 1);
    EXPECT_EQ(assumed_value(floor_div(sized("h"), 1000)), 0);
    EXPECT_EQ(assumed_extent(floor_div(sized("h"), 1000)), 1) << "an extent is at least 1";
}

TEST(AssumedExtent, TakesWhatIsKnown) {
    const Expr seq = sized("seq");
    const Bindings known = {{*seq.as_var(), 77}};
    EXPECT_EQ(assumed_extent(seq, known), 77);
    EXPECT_EQ(assumed_points(std::vector<Expr>{sized("batch"), seq, 2}, known), 128.0 * 77 * 2);
}

}  // namespace
}  // namespace tilewright
