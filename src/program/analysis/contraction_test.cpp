// Recognition of contractions and of the roles of their axes.

#include "program/analysis/contraction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program/analysis/access.h"
#include "program/statements_test.h"

namespace tilewright {
namespace {

using test::program;
using testing::ElementsAre;
using testing::IsEmpty;

Program with_operands(const std::string& type, const std::string& expression) {
    return program("input x: f32[8, 8]\n input w: f32[8, 8]\n input p: f32[2, 8, 10]\n input t: i64[8]\n y: " + type +
                   " = " + expression + "\n output y");
}
const TensorExpr& expr(const Program& p) { return *p.primitives[PrimitiveId(size_t{0})].expr(); }

TEST(Contraction, IsASumWhoseBodyIsAMultiplication) {
    const auto is = [](const std::string& type, const std::string& text) {
        return contraction(expr(with_operands(type, text))).has_value();
    };
    EXPECT_TRUE(is("f32[8, 8]", "[8, 8] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]"));
    EXPECT_TRUE(is("f32[8]", "[8] sum(i1 < 8) mul(exp(@0), 0.5) where @0 = x[i0, i1]"));
    EXPECT_FALSE(is("f32[8]", "[8] max(i1 < 8) mul(@0, @1) where @0 = x[i0, i1], @1 = w[i1, i0]"));
    EXPECT_FALSE(is("f32[8]", "[8] sum(i1 < 8) add(@0, @1) where @0 = x[i0, i1], @1 = w[i1, i0]"));
    EXPECT_FALSE(is("f32[8, 8]", "[8, 8] mul(@0, @1) where @0 = x[i0, i1], @1 = w[i0, i1]"));
}

TEST(Contraction, SaysWhichFactorsArePlainReads) {
    const Program plain =
        with_operands("f32[8, 8]", "[8, 8] sum(i2 < 8) mul(@1, @0) where @0 = x[i0, i2], @1 = w[i2, i1]");
    const auto c = contraction(expr(plain));
    ASSERT_TRUE(c);
    EXPECT_EQ(c->type, DType::F32);
    EXPECT_TRUE(c->reads_two());
    EXPECT_EQ(c->factors[0].slot, 1u) << "in the order of the multiplication";
    EXPECT_EQ(c->factors[1].slot, 0u);

    const Program square = with_operands("f32[8]", "[8] sum(i1 < 8) mul(@0, @0) where @0 = x[i0, i1]");
    EXPECT_TRUE(contraction(expr(square))->reads_plainly());
    EXPECT_FALSE(contraction(expr(square))->reads_two());

    const Program computed =
        with_operands("f32[8, 8]", "[8, 8] sum(i2 < 8) mul(exp(@0), @1) where @0 = x[i0, i2], @1 = w[i2, i1]");
    EXPECT_FALSE(contraction(expr(computed))->reads_plainly());
    EXPECT_EQ(contraction(expr(computed))->factors[1].slot, 1u);
}

TEST(Contraction, LooksThroughCastsWhereAsked) {
    const Program p =
        with_operands("f64[8, 8]", "[8, 8] sum(i2 < 8) f64(mul(@0, @1)) where @0 = x[i0, i2], @1 = w[i2, i1]");
    EXPECT_FALSE(contraction(expr(p)));
    ASSERT_TRUE(contraction(expr(p), Casts::Through));
    EXPECT_EQ(contraction(expr(p), Casts::Through)->type, DType::F32);
}

TEST(ContractionAxes, OfAMatrixProduct) {
    const Program p = with_operands("f32[8, 8]", "[8, 8] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]");
    const ContractionAxes a = axes(expr(p), *contraction(expr(p)));
    EXPECT_THAT(a.rows, ElementsAre(0));
    EXPECT_THAT(a.columns, ElementsAre(1));
    EXPECT_THAT(a.sum, ElementsAre(2));
    EXPECT_THAT(a.batch, IsEmpty());
    EXPECT_THAT(a.broadcast, IsEmpty());
    EXPECT_THAT(a.one_sided, IsEmpty());
}

TEST(PlainProduct, HasNothingDoneToItsOperands) {
    const auto plain = [](const std::string& body) {
        return is_plain_product(
            expr(with_operands("f32[8, 4]", "[8, 4] " + body + " where @0 = p[i2, 0, i1], @1 = w[i0, i2]")));
    };
    EXPECT_TRUE(plain("sum(i2 < 2) mul(@0, @1)"));
    EXPECT_TRUE(plain("sum(i2 < 2) mul(@0, @1) then exp(acc)"));
    EXPECT_FALSE(plain("sum(i2 < 2) mul(exp(@0), @1)"));
    EXPECT_FALSE(plain("max(i2 < 2) mul(@0, @1)"));
}

TEST(ContractionAxes, OfAConvolutionWithAWindowOverThePicture) {
    // y[channel, place] = sum over inputs i2 and taps i3 of p[i2, place + tap] * w[channel, tap].
    const Program p = with_operands(
        "f32[8, 4]", "[8, 4] sum(i2 < 2, i3 < 7) mul(@0, @1) where @0 = p[i2, 0, i1 + i3], @1 = w[i0, i3]");
    const ContractionAxes a = axes(expr(p), *contraction(expr(p)));
    EXPECT_THAT(a.rows, ElementsAre(1));
    EXPECT_THAT(a.columns, ElementsAre(0));
    EXPECT_THAT(a.sum, ElementsAre(3));
    EXPECT_THAT(a.one_sided, ElementsAre(2)) << "only the picture moves along the inputs";
}

TEST(ContractionAxes, FollowLoadsAndConditions) {
    const Program p = with_operands(
        "f32[8, 8, 3]",
        "[8, 8, 3] sum(i3 < 8) mul(@1, @2) where @0 = t[i0], @1 = x[@0, i3], @2 = w[i3, i1] when i2 - 1 >= 0 else 0");
    const TensorExpr& e = expr(p);
    const ContractionAxes a = axes(e, *contraction(e));
    EXPECT_THAT(a.rows, ElementsAre(0)) << "through the load of an index";
    EXPECT_THAT(a.columns, ElementsAre(1, 2)) << "through the condition of a read";
    EXPECT_FALSE(index_uses(e.accesses[2].index, 2));
    EXPECT_TRUE(moves_along(e, e.accesses[2], 2));
    EXPECT_TRUE(uses_load(e.accesses[1].index));
}

TEST(WeightedContraction, NeedsExactlyOneConstant) {
    const auto of = [](const std::string& declared) {
        const Program p = program("input x: f32[2, 2]\n " + declared +
                                  "\n y: f32[2, 2] = [2, 2] sum(i2 < 2) mul(@0, @1) where @0 = w[i0, i2], @1 = x[i2, "
                                  "i1]\n output y");
        return weighted_contraction(p, expr(p));
    };
    const auto c = of("const w: f32[2, 2] = {1, 2, 3, 4}");
    ASSERT_TRUE(c);
    EXPECT_EQ(c->weights, 0u);
    EXPECT_EQ(c->data, 1u);
    EXPECT_FALSE(of("input w: f32[2, 2]"));
}

}  // namespace
}  // namespace tilewright
