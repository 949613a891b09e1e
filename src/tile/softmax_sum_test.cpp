#include "tile/softmax_sum.h"

#include <gtest/gtest.h>

#include "program/text.h"

namespace tilewright {
namespace {

/// Whether the last stage's result is the sum of a softmax.
bool is_sum(const std::string& stages) {
    const Program p =
        parse_program("program p {\n  input x: f32[4, 8, 16]\n  input y: f32[4, 8, 16]\n" + stages + "  output s\n}");
    return is_softmax_sum(p, p.outputs[0]);
}

const std::string kMaximum = "  r: f32[4, 8, 1] = [4, 8] -> [i0, i1, 0] max(i2 < 16) @0 where @0 = x[i0, i1, i2]\n";
const std::string kTerms =
    "  p: f32[4, 8, 16] = [4, 8, 16] exp(sub(@0, @1)) where @0 = x[i0, i1, i2], @1 = r[i0, i1, 0]\n";
const std::string kSum = "  s: f32[4, 8, 1] = [4, 8] -> [i0, i1, 0] sum(i2 < 16) @0 where @0 = p[i0, i1, i2]\n";

TEST(SoftmaxSum, IsOneOfTermsThatAreAStageOrTheSumsOwn) {
    EXPECT_TRUE(is_sum(kMaximum + kTerms + kSum));
    EXPECT_TRUE(is_sum(kMaximum + "  s: f32[4, 8] = [4, 8] sum(i2 < 16) exp(sub(@0, @1)) where @0 = x[i0, i1, i2], "
                                  "@1 = r[i0, i1, 0]\n"));
    // Rows in another order.
    EXPECT_TRUE(is_sum(kMaximum +
                       "  p: f32[8, 4, 16] = [8, 4, 16] exp(sub(@0, @1)) where @0 = x[i1, i0, i2], @1 = r[i1, i0, 0]\n"
                       "  s: f32[4, 8] = [4, 8] sum(i2 < 16) @0 where @0 = p[i1, i0, i2]\n"));
    // Over two axes.
    EXPECT_TRUE(
        is_sum("  r: f32[4] = [4] max(i1 < 8, i2 < 16) @0 where @0 = x[i0, i1, i2]\n"
               "  s: f32[4] = [4] sum(i1 < 8, i2 < 16) exp(sub(@0, @1)) where @0 = x[i0, i1, i2], @1 = r[i0]\n"));
}

TEST(SoftmaxSum, IsNoneWhereSomeTermMayExceedOneOrNoneIsOne) {
    const auto sum_of = [](const std::string& body, const std::string& accesses) {
        return "  s: f32[4, 8] = [4, 8] sum(i2 < 16) " + body + " where " + accesses + "\n";
    };
    const std::string own = "@0 = x[i0, i1, i2], @1 = r[i0, i1, 0]";
    EXPECT_TRUE(is_sum(kMaximum + sum_of("exp(sub(@0, @1))", own)));
    EXPECT_FALSE(is_sum(kMaximum + sum_of("exp(sub(@1, @0))", own)));
    EXPECT_FALSE(is_sum(kMaximum + sum_of("exp(mul(sub(@0, @1), 2.0))", own)));
    EXPECT_FALSE(is_sum(kMaximum + sum_of("exp(sub(@0, @1))", "@0 = y[i0, i1, i2], @1 = r[i0, i1, 0]")));
    EXPECT_FALSE(is_sum(kMaximum + sum_of("exp(sub(@0, @1))", "@0 = x[i0, 7 - i1, i2], @1 = r[i0, i1, 0]")));
    EXPECT_FALSE(is_sum(sum_of("exp(@0)", "@0 = x[i0, i1, i2]")));
    // The maximum of half of them, of all rows, and of magnitudes; a minimum.
    EXPECT_FALSE(is_sum("  r: f32[4, 8, 1] = [4, 8] -> [i0, i1, 0] max(i2 < 8) @0 where @0 = x[i0, i1, i2]\n" +
                        sum_of("exp(sub(@0, @1))", own)));
    EXPECT_FALSE(is_sum("  r: f32[4] = [4] max(i1 < 8, i2 < 16) @0 where @0 = x[i0, i1, i2]\n" +
                        sum_of("exp(sub(@0, @1))", "@0 = x[i0, i1, i2], @1 = r[i0]")));
    EXPECT_FALSE(is_sum("  r: f32[4, 8, 1] = [4, 8] -> [i0, i1, 0] max(i2 < 16) abs(@0) where @0 = x[i0, i1, i2]\n" +
                        sum_of("exp(sub(@0, @1))", own)));
    EXPECT_FALSE(is_sum("  r: f32[4, 8, 1] = [4, 8] -> [i0, i1, 0] min(i2 < 16) @0 where @0 = x[i0, i1, i2]\n" +
                        sum_of("exp(sub(@0, @1))", own)));
    // Something added to the sum, or taken from the maximum.
    EXPECT_FALSE(is_sum(kMaximum + sum_of("exp(sub(@0, @1)) then sub(acc, 1.0)", own)));
    EXPECT_FALSE(
        is_sum("  r: f32[4, 8, 1] = [4, 8] -> [i0, i1, 0] max(i2 < 16) @0 then add(acc, 200.0) where @0 = "
               "x[i0, i1, i2]\n" +
               sum_of("exp(sub(@0, @1))", own)));
}

}  // namespace
}  // namespace tilewright
