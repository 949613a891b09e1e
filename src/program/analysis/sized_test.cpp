#include "program/analysis/sized.h"

#include <gtest/gtest.h>

#include <string>

namespace tilewright {
namespace {

/// Whether the value of that name depends on sizes alone.
bool depends_on_sizes(const Program& p, const std::string& name) {
    const IndexVector<ValueId, char> all = depend_on_sizes(p);
    for (const ValueId v : p.values.ids())
        if (p.values[v].name == name) return all[v] != 0;
    ADD_FAILURE() << "no value " << name;
    return false;
}

TEST(DependOnSizes, FollowsExpressionsFromConstantsAndPositions) {
    const Program p = parse_program(R"(program t {
  input x: f32[$n, 8]
  const table: f32[4] = {1, 2, 3, 4}
  distance: i64[$n, $n] = [$n, $n] index(max(0, min(i0 - i1, 3)))
  bias: f32[$n, $n] = [$n, $n] @1 where @0 = distance[i0, i1], @1 = table[max(0, min(@0, 3))]
  scores: f32[$n, $n] = [$n, $n] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = x[i1, i2]
  y: f32[$n, $n] = [$n, $n] add(@0, @1) where @0 = scores[i0, i1], @1 = bias[i0, i1]
  output y
})");
    EXPECT_TRUE(depends_on_sizes(p, "table"));
    EXPECT_TRUE(depends_on_sizes(p, "distance"));
    EXPECT_TRUE(depends_on_sizes(p, "bias"));
    EXPECT_FALSE(depends_on_sizes(p, "x"));
    EXPECT_FALSE(depends_on_sizes(p, "scores"));
    EXPECT_FALSE(depends_on_sizes(p, "y"));
}

TEST(DependOnSizes, ASizeThatDataDecidesIsNone) {
    const Program p = parse_program(R"(program t {
  input x: f32[8]
  input count: i64[1]
  ?n = read count[0]
  range: i64[?n] = [?n] index(i0)
  y: f32[8] = [8] @0 where @0 = x[i0]
  output y, range
})");
    EXPECT_FALSE(depends_on_sizes(p, "range"));
}

}  // namespace
}  // namespace tilewright
