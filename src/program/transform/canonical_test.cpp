// Different spellings get one canonical form, and results are preserved.

#include "program/transform/canonical.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "program/random_program.h"

namespace tilewright {
namespace {

/// out = body over x[4, 6], y[4, 6] and s[4, 1].
Program with_body(const std::string& body) {
    const Program p = parse_program(fmt::format(R"(program t {{
  input x: f32[4, 6]
  input y: f32[4, 6]
  input s: f32[4, 1]
  o: f32[4, 6] = [4, 6] {} where @0 = x[i0, i1], @1 = y[i0, i1], @2 = s[i0, 0]
  output o
}})",
                                                body));
    EXPECT_EQ(verify(p), std::vector<std::string>());
    return p;
}

std::string body_of(const Program& p) { return p.primitives[PrimitiveId(0)].expr()->body.print(); }

std::string canonical(const std::string& body) {
    const Program p = with_body(body), q = canonical_bodies(p);
    EXPECT_EQ(verify(q), std::vector<std::string>());
    const std::vector<Tensor> inputs = random_inputs(p, 3);
    EXPECT_LT(largest_difference(interpret(p, inputs, {.exact = true}), interpret(q, inputs, {.exact = true})), 1e-9);
    EXPECT_EQ(print(canonical_bodies(q)), print(q)) << "not canonical yet";
    return body_of(q);
}

TEST(CanonicalBodies, products_have_their_factors_in_order_and_one_constant) {
    EXPECT_EQ(canonical("mul(mul(@1, add(@2, 1.0)), mul(@0, 0.5))"),
              canonical("mul(mul(0.5, @0), mul(add(1.0, @2), @1))"));
    EXPECT_EQ(canonical("div(@0, 4.0)"), "mul(@0, 0.25)");
    EXPECT_EQ(canonical("div(mul(div(@0, 2.0), 8.0), add(mul(@1, @1), 1.0))"),
              "div(mul(@0, 4.0), add(mul(@1, @1), 1.0))");
}

TEST(CanonicalBodies, a_common_factor_of_both_terms_is_factored_out) {
    EXPECT_EQ(canonical("add(mul(@0, @2), sub(@1, mul(@1, @2)))"), "add(@1, mul(@2, sub(@0, @1)))");
}

TEST(CanonicalBodies, mish_uses_one_exponential) {
    const std::string mish = canonical("mul(@0, tanh(add(max(@0, 0.0), log1p(exp(neg(abs(@0)))))))");
    EXPECT_EQ(mish, canonical("mul(tanh(add(log1p(exp(neg(abs(@0)))), max(0.0, @0))), @0)"));
    EXPECT_EQ(mish.find("tanh"), std::string::npos);
    EXPECT_EQ(mish.find("log1p"), std::string::npos);
    // Similar expressions that do not match.
    const std::string other = "tanh(add(max(@0, 0.0), log1p(exp(neg(abs(@1))))))";
    EXPECT_NE(canonical(other).find("tanh"), std::string::npos);
    // Over the whole range of arguments, with the error of a few roundings.
    const Program p = parse_program(R"(program t {
  input x: f32[12]
  o: f32[12] = [12] mul(@0, tanh(add(max(@0, 0.0), log1p(exp(neg(abs(@0))))))) where @0 = x[i0]
  output o
})");
    constexpr float inf = std::numeric_limits<float>::infinity();
    const std::vector<float> at = {-inf, -3e38F, -90, -20, -1, -1e-30F, 0, 1, 19.9F, 20.1F, 3e38F, inf};
    Tensor x(DType::F32, {12});
    for (size_t i = 0; i < at.size(); ++i) x.set(static_cast<int64_t>(i), static_cast<double>(at[i]));
    const Tensor got = interpret(canonical_bodies(p), {x})[0], want = interpret(p, {x}, {.exact = true})[0];
    for (int64_t i = 0; i < 12; ++i) {
        const double w = want.get(i);
        if (std::isnan(w))
            EXPECT_TRUE(std::isnan(got.get(i))) << at[static_cast<size_t>(i)];
        else if (std::isinf(w))
            EXPECT_EQ(got.get(i), w);
        else
            EXPECT_NEAR(got.get(i), w, 4e-7 * std::fabs(w) + 1e-37) << at[static_cast<size_t>(i)];
    }
    x.set(0, std::nan(""));
    EXPECT_TRUE(std::isnan(interpret(canonical_bodies(p), {x})[0].get(0)));
}

TEST(CanonicalBodies, sums_are_not_reordered) {
    EXPECT_EQ(canonical("sub(add(@0, @1), @2)"), "sub(add(@0, @1), @2)");
    EXPECT_EQ(canonical("add(@0, sub(@1, @2))"), "add(@0, sub(@1, @2))");
}

TEST(CanonicalBodies, constants_not_representable_as_float_stay_separate) {
    EXPECT_EQ(canonical("mul(mul(@0, 1e-25), 1e-25)"), "mul(mul(@0, 1e-25), 1e-25)");
}

TEST(CanonicalBodies, programs_that_round_to_integers_keep_their_divisions) {
    EXPECT_EQ(canonical("round(div(@0, 3.0))"), "round(div(@0, 3.0))");
}

TEST(CanonicalBodies, a_root_that_divides_rows_is_inverted_once_per_row) {
    const Program p = parse_program(R"(program t {
  input x: f32[4, 6]
  input v: f32[4, 1]
  s: f32[4, 1] = [4, 1] sqrt(@0) where @0 = v[i0, i1]
  o: f32[4, 6] = [4, 6] div(@0, @1) where @0 = x[i0, i1], @1 = s[i0, 0]
  output o
})");
    const Program q = canonical_bodies(p);
    EXPECT_EQ(body_of(q), "div(1.0, sqrt(@0))");
    EXPECT_EQ(q.primitives[PrimitiveId(1)].expr()->body.print(), "mul(@0, @1)");
}

TEST(ScalesBehindProducts, of_both_operands_become_one) {
    const Program p = parse_program(R"(program t {
  input x: f32[4, 6]
  input y: f32[5, 6]
  q: f32[4, 6] = [4, 6] mul(@0, 0.5) where @0 = x[i0, i1]
  k: f32[5, 6] = [5, 6] div(@0, 4.0) where @0 = y[i0, i1]
  s: f32[4, 5] = [4, 5] sum(i2 < 6) mul(@0, @1) where @0 = q[i0, i2], @1 = k[i1, i2]
  output s
})");
    const Program q = scales_behind_products(p);
    ASSERT_EQ(verify(q), std::vector<std::string>()) << print(q);
    EXPECT_EQ(q.primitives[PrimitiveId(q.primitives.size() - 1)].expr()->body.print(), "mul(@0, 0.125)") << print(q);
    const std::vector<Tensor> inputs = random_inputs(p, 3);
    EXPECT_LT(largest_difference(interpret(p, inputs, {.exact = true}), interpret(q, inputs, {.exact = true})), 1e-9);
}

TEST(Canonical, random_programs_compute_the_same) {
    for (uint64_t seed = 0; seed < 200 && !testing::Test::HasFailure(); ++seed) {
        const Program p = random_program(seed, 12), q = canonical_bodies(scales_behind_products(p));
        ASSERT_EQ(verify(q), std::vector<std::string>()) << print(p) << print(q);
        const std::vector<Tensor> inputs = random_inputs(p, 1);
        EXPECT_LT(largest_difference(interpret(p, inputs, {.exact = true}), interpret(q, inputs, {.exact = true})),
                  1e-9)
            << print(p) << print(q);
    }
}

}  // namespace
}  // namespace tilewright
