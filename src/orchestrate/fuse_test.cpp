// Elementwise expressions move to where their operand is in a register, and nothing expensive is computed twice.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "index/expr_size.h"
#include "orchestrate/fuse.h"
#include "orchestrate/program_test.h"
#include "orchestrate/refusal_test.h"
#include "program/builder.h"

namespace tilewright {
namespace {

using namespace test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> fused(const std::string& text) {
    const Program before = with_weights(text), after = fuse_greedily(before);
    expect_same(before, after);
    return primitives(after);
}

TEST(FuseGreedily, elementwise_readers_become_the_epilogue_of_a_product) {
    EXPECT_THAT(
        fused(R"(program t {
  input x: f32[6, 8]
  input w: f32[8, 4]
  input w1: f32[4]
  p: f32[6, 4] = [6, 4] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  q: f32[6, 4] = [6, 4] add(@0, @1) where @0 = p[i0, i1], @1 = w1[i1]
  y: f32[6, 4] = [6, 4] max(@0, 0.0) where @0 = q[i0, i1]
  output y
})"),
        ElementsAre(AllOf(HasSubstr("sum(i2 < 8) mul(@0, @1) then max(add(acc, @2), 0.0)"), HasSubstr("@2 = w1[i1]"))));
}

TEST(FuseGreedily, a_residual_is_added_where_the_product_ends) {
    EXPECT_THAT(fused(R"(program t {
  input x: f32[6, 8]
  input w: f32[8, 8]
  p: f32[6, 8] = [6, 8] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  y: f32[6, 8] = [6, 8] add(@0, @1) where @0 = x[i0, i1], @1 = p[i0, i1]
  output y
})"),
                ElementsAre(HasSubstr("then add(")));
}

TEST(FuseGreedily, what_is_made_of_fewer_bytes_is_computed_where_the_product_ends) {
    const auto with = [](const std::string& input, const std::string& body) {
        return fused(fmt::format(R"(program t {{
  input x: f32[6, 8]
  input w: f32[8, 8]
  {}
  d: f32[6, 8] = [6, 8] {}
  p: f32[6, 8] = [6, 8] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  y: f32[6, 8] = [6, 8] add(@0, @1) where @0 = d[i0, i1], @1 = p[i0, i1]
  output y
}})",
                                 input, body));
    };
    EXPECT_THAT(with("input r: u8[6, 8]", "mul(f32(i32(@0)), 0.5) where @0 = r[i0, i1]"),
                ElementsAre(HasSubstr("mul(f32(i32(@2)), 0.5)")));
    EXPECT_THAT(with("input r: f32[3, 8]", "exp(@0) where @0 = r[i0 // 2, i1]"), ElementsAre(HasSubstr("exp(@2)")));
    EXPECT_THAT(with("input r: f32[6, 8]", "exp(@0) where @0 = r[i0, i1]"),
                ElementsAre(HasSubstr("exp(@0)"), HasSubstr("y = ")));
}

TEST(FuseGreedily, bytes_are_dequantised_where_they_are_read) {
    EXPECT_THAT(fused(R"(program t {
  input x: f32[6, 8]
  input w: f32[8, 8]
  p: f32[6, 8] = [6, 8] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  q: u8[6, 8] = [6, 8] u8(round(@0)) where @0 = p[i0, i1]
  d: f32[6, 8] = [6, 8] mul(f32(i32(@0)), 0.5) where @0 = q[i0, i1]
  s: f32[6, 8] = [6, 8] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i1, i2]
  y: f32[6, 8] = [6, 8] add(@0, @1) where @0 = d[i0, i1], @1 = s[i0, i1]
  output y
})"),
                ElementsAre(HasSubstr("then u8(round(acc))"), HasSubstr("mul(f32(i32(@2)), 0.5)")));
}

TEST(FuseGreedily, bytes_are_dequantised_by_each_of_several_readers) {
    const auto with = [](const std::string& quantised, const std::string& real) {
        return fused(fmt::format(R"(program t {{
  input x: f32[6, 8]
  input g: f32[8]
  input w: f32[8, 8]
  p: f32[6, 8] = [6, 8] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  c: u8[6, 8] = [6, 8] u8(round(@0)) where @0 = p[i0, i1]
  q: u8[6, 8] = [6, 8] {}
  d: f32[6, 8] = [6, 8] {} where @0 = q[i0, i1]
  s: f32[8] = [8] sum(i1 < 6) @0 where @0 = d[i1, i0]
  y: f32[6, 8] = [6, 8] mul(@0, @1) where @0 = d[i0, i1], @1 = g[i1]
  output y
  output s
}})",
                                 quantised, real));
    };
    EXPECT_THAT(
        with("u8(round(exp(f32(@0)))) where @0 = c[i0, i1]", "mul(f32(sub(i32(@0), 3:i32)), 0.5)"),
        ElementsAre(HasSubstr("then u8(round(exp("), HasSubstr("sum(i1 < 6) mul(f32(sub(i32(@0), 3:i32)), 0.5)"),
                    HasSubstr("mul(mul(f32(sub(i32(@0), 3:i32)), 0.5), @1)")));
    // Of two readers of the first bytes none is an epilogue, and what both make is not computed in place of the real
    // numbers.
    EXPECT_THAT(with("u8(round(add(exp(f32(@0)), f32(@1)))) where @0 = c[i0, i1], @1 = c[i0, (i1 + 1) % 8]",
                     "mul(f32(sub(i32(@0), 3:i32)), 0.5)"),
                ElementsAre(HasSubstr("then u8(round(acc))"), HasSubstr("u8(round(add(exp("),
                            HasSubstr("sum(i1 < 6) mul(f32(sub(i32(@0), 3:i32)), 0.5)"),
                            HasSubstr("mul(mul(f32(sub(i32(@0), 3:i32)), 0.5), @1)")));
    // Real numbers that take longer to compute are computed once.
    EXPECT_THAT(with("u8(round(exp(f32(@0)))) where @0 = c[i0, i1]", "exp(sqrt(mul(f32(sub(i32(@0), 3:i32)), 0.5)))"),
                ElementsAre(HasSubstr("then exp(sqrt("), HasSubstr("sum(i1 < 6) @0"), HasSubstr("mul(@0, @1)")));
}

TEST(FuseGreedily, of_a_chain_of_sums_every_product_adds_to_what_the_one_before_it_left) {
    EXPECT_THAT(fused(R"(program t {
  input x: f32[6, 8]
  input u: f32[6, 8]
  input v: f32[6, 8]
  input w: f32[8, 4]
  p: f32[6, 4] = [6, 4] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  q: f32[6, 4] = [6, 4] sum(i2 < 8) mul(@0, @1) where @0 = u[i0, i2], @1 = w[i2, i1]
  r: f32[6, 4] = [6, 4] sum(i2 < 8) mul(@0, @1) where @0 = v[i0, i2], @1 = w[i2, i1]
  s: f32[6, 4] = [6, 4] add(@0, @1) where @0 = p[i0, i1], @1 = q[i0, i1]
  y: f32[6, 4] = [6, 4] add(@0, @1) where @0 = s[i0, i1], @1 = r[i0, i1]
  output y
})"),
                ElementsAre(AllOf(HasSubstr("x[i0, i2]"), Not(HasSubstr("then"))),
                            AllOf(HasSubstr("u[i0, i2]"), HasSubstr("then add("), HasSubstr("p[i0, i1]")),
                            AllOf(HasSubstr("v[i0, i2]"), HasSubstr("then add("), HasSubstr("s[i0, i1]"))));
}

/// Splits columns into heads, heads outermost: [6, heads * width] -> [heads, 6, width].
std::string split_into_heads(int heads, int width) {
    return fmt::format(R"(program t {{
  input x: f32[6, 8]
  input w: f32[8, {2}]
  p: f32[6, {2}] = [6, {2}] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  y: f32[{0}, 6, {1}] = [{0}, 6, {1}] @0 where @0 = p[i1, {1}*i0 + i2]
  output y
}})",
                       heads, width, heads * width);
}

TEST(FuseGreedily, a_transposition_joins_a_product_unless_it_tears_rows_into_pieces_that_fill_no_vector) {
    EXPECT_EQ(fused(split_into_heads(4, 16)).size(), 1u);
    EXPECT_EQ(fused(split_into_heads(4, 13)).size(), 2u);
}

TEST(FuseGreedily, products_read_through_transpositions) {
    EXPECT_THAT(fused(R"(program t {
  input x: f32[8, 6]
  input w: f32[8, 4]
  t: f32[6, 8] = [6, 8] @0 where @0 = x[i1, i0]
  y: f32[6, 4] = [6, 4] sum(i2 < 8) mul(@0, @1) where @0 = t[i0, i2], @1 = w[i2, i1]
  output y
})"),
                ElementsAre(AllOf(HasSubstr("x[i2, i0]"), HasSubstr("w[i2, i1]"))));
}

TEST(FuseGreedily, halves_that_are_only_put_elsewhere_are_not_rounded_again) {
    EXPECT_THAT(fused(R"(program t {
  input x: f16[6, 8]
  input k: f16[4, 8]
  t: f16[8, 4] = [8, 4] @0 where @0 = k[i1, i0]
  y: f16[6, 4] = [6, 4] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = t[i2, i1]
  output y
})"),
                ElementsAre(AllOf(HasSubstr("mul(@0, @1)"), HasSubstr("@1 = k[i1, i2]"))));
    // With rounding in between, it is a copy.
    EXPECT_EQ(fused(R"(program t {
  input x: f16[6, 8]
  input k: f32[4, 8]
  t: f16[8, 4] = [8, 4] @0 where @0 = k[i1, i0]
  y: f16[6, 4] = [6, 4] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = t[i2, i1]
  output y
})")
                  .size(),
              2u);
}

TEST(FuseGreedily, products_write_through_transpositions) {
    EXPECT_THAT(fused(R"(program t {
  input x: f32[6, 8]
  input w: f32[8, 4]
  p: f32[6, 4] = [6, 4] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  y: f32[4, 6] = [4, 6] @0 where @0 = p[i1, i0]
  output y
})"),
                ElementsAre(HasSubstr("sum(i2 < 8)")));
}

TEST(FuseGreedily, work_on_the_operand_of_a_product_is_done_once_and_not_for_every_use) {
    EXPECT_THAT(fused(R"(program t {
  input x: f32[6, 8]
  input w: f32[8, 4]
  r: f32[6, 8] = [6, 8] max(@0, 0.0) where @0 = x[i0, i1]
  y: f32[6, 4] = [6, 4] sum(i2 < 8) mul(@0, @1) where @0 = r[i0, i2], @1 = w[i2, i1]
  output y
})"),
                ElementsAre(HasSubstr("r = "), HasSubstr("y = ")));
}

TEST(FuseGreedily, the_exponentials_of_a_softmax_are_computed_once) {
    const std::vector<std::string> kernels = fused(R"(program t {
  input x: f32[6, 40]
  m: f32[6, 1] = [6, 1] max(i2 < 40) @0 where @0 = x[i0, i2]
  d: f32[6, 40] = [6, 40] sub(@0, @1) where @0 = x[i0, i1], @1 = m[i0, 0]
  e: f32[6, 40] = [6, 40] exp(@0) where @0 = d[i0, i1]
  s: f32[6, 1] = [6, 1] sum(i2 < 40) @0 where @0 = e[i0, i2]
  y: f32[6, 40] = [6, 40] div(@0, @1) where @0 = e[i0, i1], @1 = s[i0, 0]
  output y
})");
    EXPECT_THAT(kernels, ElementsAre(HasSubstr("m = "), HasSubstr("e = [6, 40] exp(sub(@0, @1))"), HasSubstr("s = "),
                                     HasSubstr("y = ")));
}

TEST(FuseGreedily, what_is_broadcast_is_not_computed_again_for_every_copy) {
    EXPECT_THAT(fused(R"(program t {
  input x: f32[64, 32]
  input b: f32[32]
  e: f32[32] = [32] exp(@0) where @0 = b[i0]
  y: f32[64, 32] = [64, 32] mul(@0, @1) where @0 = x[i0, i1], @1 = e[i1]
  output y
})"),
                ElementsAre(HasSubstr("e = [32] exp"), HasSubstr("y = [64, 32] mul")));
}

/// Korch's figure 12: the end of a normalisation is computed where the padded image is written.
TEST(FuseGreedily, the_rim_of_a_picture_is_computed_again_where_it_is_reflected) {
    EXPECT_THAT(fused(R"(program t {
  input x: f32[8, 64]
  input m: f32[8, 1]
  input w: f32[8, 1]
  d: f32[8, 64] = [8, 64] mul(sub(@0, @1), @2) where @0 = x[i0, i1], @1 = m[i0, 0], @2 = w[i0, 0]
  r: f32[8, 64] = [8, 64] max(add(mul(@0, @0), @0), 0.0) where @0 = d[i0, i1]
  y: f32[8, 68] = [8, 68] @0 where @0 = r[i0, max(2 - i1, min(i1 - 2, 128 - i1))]
  output y
})")
                    .size(),
                1u);
}

TEST(FuseGreedily, chains_and_views_of_elementwise_work_are_one) {
    EXPECT_THAT(fused(R"(program t {
  input x: f32[6, 40]
  a: f32[6, 40] = [6, 40] exp(@0) where @0 = x[i0, i1]
  b: f32[40, 6] = [40, 6] @0 where @0 = a[i1, i0]
  y: f32[40, 6] = [40, 6] neg(@0) where @0 = b[i0, i1]
  output y
})"),
                ElementsAre("y = [40, 6] neg(exp(@0)) where @0 = x[i1, i0]"));
}

TEST(FuseGreedily, views_of_views_are_one_until_their_indices_become_long) {
    const auto shuffled = [](int times) {
        Program p;
        p.name = "shuffled";
        Builder b(p);
        ValueId v = b.input("x", DType::F32, {2, 3, 4});
        for (int i = 0; i < times; ++i) v = b.reshape(b.transpose(v, {1, 2, 0}), {2, 3, 4});
        b.set_outputs({v});
        return p;
    };
    EXPECT_EQ(fuse_greedily(shuffled(4)).primitives.size(), 1u);
    const Program before = shuffled(24), after = fuse_greedily(before);
    expect_same(before, after);
    EXPECT_GT(after.primitives.size(), 1u);
    EXPECT_LT(after.primitives.size(), 20u);
    for (const Primitive& p : after.primitives)
        for (const Access& a : p.expr()->accesses) EXPECT_TRUE(std::none_of(a.index.begin(), a.index.end(), is_long));
}

TEST(FuseGreedily, results_of_the_program_are_kept) {
    EXPECT_THAT(fused(R"(program t {
  input x: f32[6, 8]
  input w: f32[8, 4]
  p: f32[6, 4] = [6, 4] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  y: f32[6, 4] = [6, 4] max(@0, 0.0) where @0 = p[i0, i1]
  output p
  output y
})"),
                ElementsAre(HasSubstr("p = "), HasSubstr("y = ")));
}

TEST(FuseGreedily, keeps_what_random_programs_compute) {
    int fewer = 0;
    for (uint64_t seed = 0; seed < 400; ++seed) {
        const Program before = random_program(seed, 2 + static_cast<int>(seed % 8));
        const Program after = fuse_greedily(before);
        expect_same(before, after, seed);
        fewer += after.primitives.size() < before.primitives.size() ? 1 : 0;
    }
    EXPECT_GT(fewer, 100);
}

std::string fuse_refusal(const std::string& expressions, const std::string& producer, const std::string& reader,
                         const FusionLimits& limits = {}) {
    const std::string text = "program t {\n  input x: f32[6, 8]\n  input w: f32[8, 8]\n" + expressions + "}";
    return refusal(
        with_weights(text), producer, reader, [](const Program& p, const FusionLimits& l) { fuse_greedily(p, l); },
        limits);
}

const std::string kProduct = "  p: f32[6, 8] = [6, 8] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]\n";
const std::string kSumOfRows = "  s: f32[6, 1] = [6, 1] sum(i2 < 8) @0 where @0 = x[i0, i2]\n";
const std::string kExponentials = "  a: f32[6, 8] = [6, 8] exp(@0) where @0 = x[i0, i1]\n";

TEST(FuseGreedily, what_depends_on_sizes_alone_is_kept_apart_where_sessions_compute_it_once) {
    const Program before = parse_program(R"(program t {
  input x: f32[$n, 8]
  const table: f32[4] = {1, 2, 3, 4}
  weight: f32[$n] = [$n] exp(@0) where @0 = table[i0 % 4]
  mask: bool[$n, 8] = [$n, 8] lt(index(i0), index(i1))
  scaled: f32[$n, 8] = [$n, 8] mul(@0, @1) where @0 = x[i0, i1], @1 = weight[i0]
  y: f32[$n, 8] = [$n, 8] select(@0, @1, 0.0) where @0 = mask[i0, i1], @1 = scaled[i0, i1]
  output y
})");
    FusionLimits limits;
    limits.sizes_apart = true;
    const std::vector<std::string> apart = primitives(fuse_greedily(before, limits));
    ASSERT_EQ(apart.size(), 2u);
    EXPECT_THAT(apart[0], HasSubstr("exp("));
    EXPECT_THAT(apart[1], HasSubstr("lt(")) << "comparing positions takes no longer than reading the result";
    expect_same(before, fuse_greedily(before, limits));
}

TEST(FuseGreedily, says_why_a_reader_is_no_epilogue) {
    const std::string neg = "  y: f32[6, 8] = [6, 8] neg(@0) where @0 = p[i0, i1]\n  output y\n";
    EXPECT_EQ(fuse_refusal(kProduct + neg, "p", "y"), "");
    EXPECT_EQ(fuse_refusal(kProduct + neg, "p", "y", nothing_shared()), "an option forbids fusing the two");
    EXPECT_EQ(fuse_refusal(kProduct + neg + "  output p\n", "p", "y"), "its operand is an output of the program");
    EXPECT_EQ(
        fuse_refusal(kProduct + neg + "  z: f32[6, 8] = [6, 8] exp(@0) where @0 = p[i0, i1]\n  output z\n", "p", "y"),
        "its operand has other readers");
    EXPECT_EQ(
        fuse_refusal(kProduct + "  y: f32[6, 1] = [6, 1] max(i2 < 8) @0 where @0 = p[i0, i2]\n  output y\n", "p", "y"),
        "both are reductions");
    EXPECT_EQ(fuse_refusal(kProduct + "  y: f32[6, 8] = [6, 8] sub(@0, @1) where @0 = p[i0, i1], @1 = p[i0, 0]\n"
                                      "  output y\n",
                           "p", "y"),
              "it reads its operand at several places");
    EXPECT_EQ(fuse_refusal(kSumOfRows + "  y: f32[6, 8] = [6, 8] div(@0, @1) where @0 = x[i0, i1], @1 = s[i0, 0]\n"
                                        "  output y\n",
                           "s", "y"),
              "it cannot be an epilogue: its reads and writes are at different points");
}

TEST(FuseGreedily, says_why_an_operand_is_not_computed_in_place) {
    EXPECT_EQ(fuse_refusal(kExponentials + "  y: f32[6, 8] = [6, 8] sum(i2 < 8) mul(@0, @1) where @0 = a[i0, i2], "
                                           "@1 = w[i2, i1]\n  output y\n",
                           "a", "y"),
              "its operand would be computed once for each use in the product");
    const std::string twice =
        "  y: f32[6, 8] = [6, 8] neg(@0) where @0 = a[i0, i1]\n"
        "  z: f32[6, 1] = [6, 1] sum(i2 < 8) @0 where @0 = a[i0, i2]\n  output y\n  output z\n";
    EXPECT_EQ(fuse_refusal(kExponentials + twice, "a", "y"),
              "its operand has other readers and would be computed in each");
    FusionLimits once;
    once.recompute = false;
    EXPECT_EQ(fuse_refusal(kExponentials + twice, "a", "y", once),
              "an option forbids recomputation, and its operand has other readers");
}

}  // namespace
}  // namespace tilewright
