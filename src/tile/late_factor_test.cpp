#include "tile/late_factor.h"

#include <gtest/gtest.h>

#include "program/scalar_text.h"
#include "program/text.h"

namespace tilewright {
namespace {

std::string without_factor(const std::string& epilogue) {
    const auto found = late_factor(parse_scalar(
        epilogue, [](uint32_t) { return DType::F32; }, DType::F32));
    if (!found) return "none";
    return fmt::format("{}: {}", found->factor, found->epilogue.empty() ? "acc" : found->epilogue.print());
}

TEST(LateFactor, isOfEverythingThatAnEpilogueGives) {
    EXPECT_EQ(without_factor("mul(acc, 0.125)"), "0.125: acc");
    EXPECT_EQ(without_factor("div(acc, 8.0)"), "0.125: acc");
    // Masks: an infinity and 0 stay what they are.
    EXPECT_EQ(without_factor("select(lt(@0, 1.0), mul(acc, 0.125), -inf)"), "0.125: select(lt(@0, 1.0), acc, -inf)");
    EXPECT_EQ(without_factor("mul(add(acc, @0), 0.5)"), "0.5: add(acc, @0)");
}

TEST(LateFactor, isNoneWhereSomethingElseHasNoSuchFactor) {
    EXPECT_EQ(without_factor("add(mul(acc, 0.125), @0)"), "none");
    EXPECT_EQ(without_factor("select(lt(@0, 1.0), mul(acc, 0.125), -65504.0)"), "none");
    EXPECT_EQ(without_factor("select(lt(@0, 1.0), mul(acc, 0.125), mul(acc, 0.5))"), "none");
    EXPECT_EQ(without_factor("mul(acc, -0.125)"), "none");  // a minimum would be the maximum
    EXPECT_EQ(without_factor("mul(acc, 0.0)"), "none");
    EXPECT_EQ(without_factor("mul(acc, @0)"), "none");
}

/// Whether y, made of c and r, takes a factor of c.
bool takes(const std::string& y) {
    const Program p =
        parse_program("program p {\n  input c: f32[8, 16]\n  input r: f32[8, 1]\n  " + y + "\n  output y\n}");
    return takes_factor(*p.primitives[PrimitiveId(0)].expr(), p.inputs[0]);
}

TEST(LateFactor, costsNothingInMaximaAndInDifferencesUnderAnExponential) {
    EXPECT_TRUE(takes("y: f32[8] = [8] max(i1 < 16) @0 where @0 = c[i0, i1]"));
    EXPECT_TRUE(takes("y: f32[8, 16] = [8, 16] exp(sub(@0, @1)) where @0 = c[i0, i1], @1 = r[i0, 0]"));
    EXPECT_TRUE(takes("y: f32[8] = [8] sum(i1 < 16) exp(sub(@0, @1)) where @0 = c[i0, i1], @1 = r[i0, 0]"));
    EXPECT_FALSE(takes("y: f32[8] = [8] sum(i1 < 16) @0 where @0 = c[i0, i1]"));
    EXPECT_FALSE(takes("y: f32[8] = [8] max(i1 < 16) abs(@0) where @0 = c[i0, i1]"));
    EXPECT_FALSE(takes("y: f32[8, 16] = [8, 16] exp(sub(@1, @0)) where @0 = c[i0, i1], @1 = r[i0, 0]"));
    EXPECT_FALSE(takes("y: f32[8, 16] = [8, 16] mul(@0, exp(sub(@0, @1))) where @0 = c[i0, i1], @1 = r[i0, 0]"));
    EXPECT_FALSE(takes("y: f32[8, 16] = [8, 16] sub(@0, @1) where @0 = c[i0, i1], @1 = r[i0, 0]"));
    EXPECT_FALSE(takes("y: f32[8, 1] = [8, 1] exp(@0) where @0 = r[i0, 0]"));  // does not read it
}

}  // namespace
}  // namespace tilewright
