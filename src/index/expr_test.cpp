// Index expressions by example: canonical form, text, simplification, proofs.

#include "index/expr.h"
#include "index/axes_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "index/expr_scope.h"

namespace tilewright {
namespace {

Ranges in_box(std::vector<Expr> extents) { return Ranges::of_extents(extents); }

std::string parse_failure(std::string_view text) {
    try {
        parse_expr(text);
    } catch (const ModelError& e) {
        return e.what();
    }
    return "nothing";
}

TEST(Expr, EqualPolynomialsAreOneExpression) {
    EXPECT_EQ(i0 + n + n, n * 2 + i0);
    EXPECT_EQ((i0 + 1) * (i0 - 1), i0 * i0 - 1);
    EXPECT_EQ(i0 - i0, Expr(0));
    EXPECT_NE(i0, i1);
}

TEST(Expr, MultiplesLeaveADivision) {
    EXPECT_EQ(floor_div(i0 * 64 + i1, 64).text(), "i1 // 64 + i0");
    EXPECT_EQ(mod(i0 * 64 + i1, 64).text(), "i1 % 64");
    EXPECT_EQ(floor_div(i0 * 4 + 2, 8).text(), "i0 // 2");
    EXPECT_EQ(floor_div(floor_div(i0, 4), 3).text(), "i0 // 12");
    EXPECT_EQ(floor_div(i0 * n + i1, n).text(), "i1 // $n + i0");
    EXPECT_EQ(floor_div(i0 * (n + m), n + m), i0);
    EXPECT_EQ(mod(i0 * n, n), Expr(0));
    EXPECT_EQ(ceil_div(i0 * 4, 4), i0);
}

TEST(Expr, OnlyDimensionsAreCancelledAsDivisors) {
    EXPECT_EQ(floor_div(n, n), Expr(1));
    EXPECT_EQ(floor_div(scalar("s") * n * m, scalar("s") * n), m);
    EXPECT_EQ(floor_div(i0, i0).text(), "i0 // i0");
    EXPECT_EQ(floor_div(i0 * max(scalar("s"), 1), max(scalar("s"), 1)), i0);
}

TEST(Expr, DivisionRoundsDownAndByZeroGivesZero) {
    EXPECT_EQ(floor_div(Expr(-7), 2), Expr(-4));
    EXPECT_EQ(mod(Expr(-7), 2), Expr(1));
    EXPECT_EQ(floor_div(Expr(7), -2), Expr(-4));
    EXPECT_EQ(mod(Expr(7), -2), Expr(-1));
    EXPECT_EQ(floor_div(Expr(7), 0), Expr(0));
    EXPECT_EQ(mod(Expr(7), 0), Expr(0));
    EXPECT_EQ(floor_div(int64_t{INT64_MIN}, int64_t{-1}), INT64_MAX);
}

TEST(Expr, DecidedExtremaAreSimplified) {
    EXPECT_EQ(min(n, n + 1), n);
    EXPECT_EQ(max(n, 1), n);
    EXPECT_EQ(max(n * m, n), n * m);
    EXPECT_EQ(min(i1, i0), min(i0, i1));
    EXPECT_EQ(max(scalar("s"), 1).text(), "max(1, ?s)");
}

TEST(Expr, OverflowIsAnError) {
    EXPECT_THROW(Expr(INT64_MAX) + 1, ModelError);
    EXPECT_THROW(i0 * INT64_MAX * 2, ModelError);
}

TEST(Expr, UnboundedGrowthIsAnError) {
    EXPECT_THROW(for (Expr e = n;;) e = e * e, ModelError) << "one term, of any degree";
    EXPECT_THROW(for (Expr e = n + m + i0;;) e = e * e, ModelError) << "any number of terms";
    EXPECT_THROW(for (Expr e = i0;;) e = floor_div(e * 3 + i1, 2), ModelError) << "any depth";
}

TEST(Expr, TextHasNoParenthesesThatReadingDoesNotNeed) {
    EXPECT_EQ((floor_div(i0, 4) + mod(i1, 4) + i2).text(), "i0 // 4 + i1 % 4 + i2");
    EXPECT_EQ((i2 - floor_div(i0, 4)).text(), "-(i0 // 4) + i2");
    EXPECT_EQ((floor_div(i0, 4) * mod(i1, 4)).text(), "(i0 // 4)*(i1 % 4)");
    EXPECT_EQ(mod(floor_div(i0, 4), 3).text(), "(i0 // 4) % 3");
    EXPECT_EQ(floor_div(i0 + 1, n * m).text(), "(i0 + 1) // ($m*$n)");
}

TEST(Expr, OrdinarySpellingsAreRead) {
    EXPECT_EQ(parse_expr("2*i0 + i0"), i0 * 3);
    EXPECT_EQ(parse_expr("-(i0 - 3) // 2"), floor_div(3 - i0, 2));
    EXPECT_EQ(parse_expr("min($batch, 4) % 3 + ?x.y - @2"), mod(min(symbol("batch"), 4), 3) + scalar("x.y") - load(2));
    EXPECT_EQ(parse_expr("-9223372036854775808"), Expr(INT64_MIN));
}

TEST(Expr, ParseErrorsNameTheColumn) {
    EXPECT_EQ(parse_failure("i0 +"), "index expression 'i0 +': expected an operand at column 5");
    EXPECT_EQ(parse_failure("(i0"), "index expression '(i0': expected ')' at column 4");
    EXPECT_EQ(parse_failure("i0 i1"), "index expression 'i0 i1': expected end of expression at column 4");
    EXPECT_EQ(parse_failure("$"), "index expression '$': expected a name at column 2");
    EXPECT_EQ(parse_failure("99999999999999999999"),
              "index expression '99999999999999999999': expected a 64-bit integer at column 21");
    EXPECT_EQ(parse_failure("x"),
              "index expression 'x': expected a number, i<axis>, @<access>, $<symbol>, ?<scalar>, min(, max( or '(' at "
              "column 1");
    EXPECT_NE(parse_failure(std::string(5000, '(')).find("expected less nesting"), std::string::npos);
    EXPECT_NE(parse_failure(std::string(5000, '-') + "1").find("expected less nesting"), std::string::npos);
}

TEST(Expr, NamesKeepIdentifiersAndEscapeOtherBytes) {
    EXPECT_EQ(symbol("past length").text(), "$past_20length");
    EXPECT_EQ(symbol("").text(), "$_");
    EXPECT_EQ(parse_expr(symbol("a/b").text()), symbol("a/b"));
}

TEST(Expr, AMultipleOfAStepIsDividedWithoutRemainders) {
    const Expr steps = symbol("past length", 32), size = 32 * steps;
    EXPECT_EQ(size.text(), "32*$past_20length/32");
    EXPECT_EQ(parse_expr(size.text()), size);
    EXPECT_EQ(parse_expr(size.text() + " // 3"), floor_div(size, 3));
    EXPECT_EQ(parse_expr("$n//2"), floor_div(symbol("n"), 2));
    EXPECT_EQ(floor_div(size - 1, 2) + 1, 16 * steps);
    EXPECT_EQ(mod(size, 16), Expr(0));
    EXPECT_TRUE(prove_positive(size - 31, {}));
    EXPECT_EQ(symbol("n", 1), symbol("n"));
    EXPECT_EQ(named_symbol(var_name(*steps.as_var())), steps);
    EXPECT_EQ(symbol("a/8").text(), "$a_2f8") << "a name of a model";
    EXPECT_EQ(size_name(*steps.as_var()).step, 32);
    EXPECT_EQ(parse_failure("$n/1"), "index expression '$n/1': expected a step of at least 2 at column 5");
}

TEST(Expr, ADimensionDeterminesTheSymbolThatIsItOrCountsItsSteps) {
    EXPECT_EQ(bound_symbol(n), n.as_var());
    EXPECT_EQ(bound_symbol(8 * symbol("n", 8)), symbol("n", 8).as_var());
    for (const Expr e : {2 * n, 16 * symbol("n", 8), 8 * symbol("n", 8) + 1, n * symbol("n", 8), Expr(8), scalar("n")})
        EXPECT_EQ(bound_symbol(e), std::nullopt) << e.text();
}

TEST(Expr, SimplifyUsesRanges) {
    const Ranges box = in_box({8, 64, n});
    EXPECT_EQ(simplify(floor_div(i0 * 64 + i1, 64), box), i0);
    EXPECT_EQ(simplify(mod(i0 * 64 + i1, 64), box), i1);
    EXPECT_EQ(simplify(floor_div(i0 * 64 + i1, 128), box), floor_div(i0, 2));
    EXPECT_EQ(simplify(mod(i0 * 64 + i1, 128), box), mod(i0, 2) * 64 + i1);
    EXPECT_EQ(simplify(mod(i2, n), box), i2);
    EXPECT_EQ(simplify(floor_div(i0 * n + i2, n), box), i0);
    EXPECT_EQ(simplify(min(i0, 7), box), i0);
    EXPECT_EQ(simplify(max(i0 - 8, 0), box), Expr(0));
    EXPECT_EQ(simplify(mod(i0 + 8, 16), box), i0 + 8);
    EXPECT_EQ(simplify(i0 + i1, in_box({1, 4})), i1);
}

TEST(Expr, SimplifyPutsDigitsOfOneNumberTogether) {
    const Ranges box = in_box({64, n * m});
    EXPECT_EQ(simplify(floor_div(i0, 4) * 4 + mod(i0, 4), box), i0);
    EXPECT_EQ(simplify(mod(floor_div(i0, 4), 8) * 12 + mod(i0, 4) * 3 + i1, box), mod(i0, 32) * 3 + i1);
    EXPECT_EQ(simplify(floor_div(i0, 8) * 8 + mod(floor_div(i0, 2), 4) * 2 + mod(i0, 2), box), i0);
    EXPECT_EQ(simplify(floor_div(i1, m) * m + mod(i1, m), box), i1);
    EXPECT_EQ(simplify(floor_div(i0, 4) * 4 + mod(i1, 4), box), floor_div(i0, 4) * 4 + mod(i1, 4));
}

TEST(Expr, ProofsUseRangesAndPositiveSymbols) {
    const Ranges box = in_box({8, n});
    EXPECT_TRUE(prove_less(i0, 8, box));
    EXPECT_TRUE(prove_less(i1, n, box));
    EXPECT_TRUE(prove_less(i0 * n + i1, n * 8, box));
    EXPECT_TRUE(prove_positive(n, {}));
    EXPECT_FALSE(prove_positive(scalar("s"), {}));
    EXPECT_FALSE(prove_less(i0, 7, box));
    EXPECT_FALSE(prove_less(i1, m, box));
    EXPECT_TRUE(prove_nonnegative(floor_div(n, 4), {}));
    EXPECT_TRUE(prove_nonnegative(n - floor_div(n, 4) * 4, {}));
}

TEST(Expr, BoundsNeverMultiplyByAPossiblyNegativeFactor) {
    EXPECT_FALSE(prove_nonnegative(mod(n, 10) * floor_div(Expr(-1), n), {}));
    EXPECT_FALSE(prove_nonnegative(floor_div(m, 2) * min(scalar("s"), 0), {}));
}

TEST(Expr, LinearPartsExistOnlyOutsideAtoms) {
    const auto parts = linear_in(i0 * n * 2 + i1 + 3, *i0.as_var());
    ASSERT_TRUE(parts.has_value());
    EXPECT_EQ(parts->coefficient, n * 2);
    EXPECT_EQ(parts->rest, i1 + 3);
    EXPECT_FALSE(linear_in(floor_div(i0, 2), *i0.as_var()).has_value());
    EXPECT_FALSE(linear_in(i0 * i0, *i0.as_var()).has_value());
}

TEST(Expr, CoefficientsOfAxes) {
    using ::testing::ElementsAre, ::testing::Optional;
    EXPECT_THAT(axis_coefficients(i0 * n * 2 + i0 + i1 * 3 + floor_div(axis(2), 2) + axis(5), 4),
                ElementsAre(Optional(n * 2 + 1), Optional(Expr(3)), std::nullopt, Optional(Expr(0))));
    EXPECT_THAT(axis_coefficients(i0 * i0 + i1 * i0 + i1, 2), ElementsAre(std::nullopt, Optional(i0 + 1)));
}

TEST(Expr, EvaluationNamesAMissingVariable) {
    const std::vector<int64_t> point{3};
    Env env;
    env.axes = point;
    EXPECT_EQ(evaluate(i0 * 2 + 1, env), 7);
    try {
        evaluate(i0 + n, env);
        FAIL();
    } catch (const InternalError& e) {
        EXPECT_NE(std::string(e.what()).find("$n"), std::string::npos);
    }
}

/// Work while a model runs leaves no expressions behind, and its own are equal where they are the same.
TEST(Expr, MadeForATimeAreFreed) {
    const Expr before = symbol("rows_for_a_time") * 12 + axis(3);
    const size_t count = interned_exprs();
    std::string text;
    with_temporary_exprs([&] {
        const Expr rows = symbol("rows_for_a_time"), sum = rows * 12 + axis(3);
        EXPECT_TRUE(sum == before) << "those that exist are the same";
        const Expr quotient = floor_div(sum + 7919, 64), again = floor_div(7919 + axis(3) + rows * 12, 64);
        EXPECT_TRUE(quotient == again);
        EXPECT_FALSE(quotient == again + 1);
        EXPECT_EQ(substitute_axes(quotient, plain_axes(3)), quotient);
        EXPECT_TRUE(simplify(mod(sum * 104729, 104729), {}).is_constant(0));
        text = quotient.text();
    });
    EXPECT_EQ(interned_exprs(), count);
    EXPECT_EQ(parse_expr(text).text(), text) << "made again, for good";
    EXPECT_GT(interned_exprs(), count);
    EXPECT_THROW(with_temporary_exprs([] { throw std::runtime_error("failed"); }), std::runtime_error);
    EXPECT_EQ(symbol("rows_for_a_time") * 12 + axis(3), before);
}

}  // namespace
}  // namespace tilewright
