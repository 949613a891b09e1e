// A kernel's estimate is evaluated once for all sizes that its expressions do not tell apart.

#include "orchestrate/dynamic/size_dependence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "cost/estimate.h"
#include "cost/target_with_test.h"

namespace tilewright::dynamic {
namespace {

using ::testing::UnorderedElementsAre;

/// Rows of every second image line, padded by one above: $h appears as $h // 2 and in a condition on it.
constexpr const char* kHalf = R"(tile half {
stages {
program half {
  input x: f32[$n, $h // 2, 64]
  out: f32[$n, $h // 2, 64] = [$n, $h // 2, 64] -> [i0, i1, i2] @0 where @0 = x[i0, i1 + 1, i2] when $h // 2 - i1 - 2 >= 0 else 0  ; half ""
  output out
}
}
axes n="$n" h="$h // 2" c="64"
stage 0 over [n h c]
parallel n by 1 {
  compute 0 padding partition
}
}
)";

std::set<std::string> texts(const std::vector<Expr>& all) {
    std::set<std::string> out;
    for (const Expr e : all) out.insert(e.text());
    return out;
}

TEST(SizeExpressions, are_the_maximal_ones_without_axes) {
    EXPECT_THAT(texts(size_expressions(parse_tile_program(kHalf).stages)), UnorderedElementsAre("$n", "$h // 2"));
}

TEST(SizeExpressions, of_a_kernel_of_known_sizes_are_none) {
    std::string text = kHalf;
    for (const char* name : {"$n", "$h"})
        for (size_t at; (at = text.find(name)) != std::string::npos;) text.replace(at, 2, "8");
    EXPECT_TRUE(size_expressions(parse_tile_program(text).stages).empty());
}

TEST(BySize, evaluates_once_for_sizes_that_are_told_apart_by_no_expression) {
    const TileProgram kernel = parse_tile_program(kHalf);
    const Target target = test::target_with({.lanes = 8, .vector_registers = 16});
    int calls = 0;
    BySize seconds(kernel, [&](const TileProgram& k, const Bindings& sizes) {
        ++calls;
        return estimate(k, target, sizes).seconds;
    });
    const Var n = *symbol("n").as_var(), h = *symbol("h").as_var();
    for (int64_t rows = 1; rows <= 32; ++rows)
        for (const int64_t images : {1, 3}) {
            const Bindings sizes{{n, images}, {h, rows}};
            EXPECT_EQ(seconds(sizes), estimate(kernel, target, sizes).seconds) << rows;
        }
    EXPECT_EQ(calls, 2 * 17) << "0 to 16 pairs of rows";
}

}  // namespace
}  // namespace tilewright::dynamic
