// Recognition of chains, identification of axes, and factors that move out of sums.

#include "schedule/chain/chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/given_test.h"
#include "program/random_program.h"
#include "schedule/chain/chains_test.h"
#include "schedule/chain/groups.h"

namespace tilewright::chain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> stages_of(const Program& p) {
    std::vector<std::string> out;
    for (const Primitive& q : p.primitives) out.push_back(p.values[q.outputs[0]].name + " = " + print(p, *q.expr()));
    return out;
}

TEST(IsProduct, needs_both_factors_again) {
    const auto product = [](const std::string& expression) {
        const Program p =
            parse_program("program t {\n  input a: f32[8, 6]\n  input b: f32[6, 5]\n" + expression + "\n  output c\n}");
        return is_product(*p.primitives[PrimitiveId(0)].expr());
    };
    EXPECT_TRUE(product("c: f32[8, 5] = [8, 5] sum(i2 < 6) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]"));
    // a matrix times a vector: the matrix is read once
    EXPECT_FALSE(product("c: f32[8] = [8] sum(i1 < 6) mul(@0, @1) where @0 = a[i0, i1], @1 = b[i1, 0]"));
    EXPECT_FALSE(product("c: f32[1, 5] = [1, 5] sum(i2 < 6) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]"));
    EXPECT_FALSE(product("c: f32[8, 5] = [8, 5] max(i2 < 6) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]"));
    EXPECT_FALSE(product("c: f32[8, 5] = [8, 5] sum(i2 < 6) add(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]"));
    EXPECT_FALSE(product("c: f32[8] = [8] sum(i1 < 6) @0 where @0 = a[i0, i1]"));
}

TEST(MakeChain, finds_the_axes_of_two_products) {
    const Chain c = given(make_chain(two_products(9, 8, 5, 6)));
    EXPECT_THAT(c.extents, ElementsAre(9, 8, 5, 6));  // m, n, k, h
    EXPECT_THAT(c.stage_axes[PrimitiveId(0)], ElementsAre(0, 1, 2));
    EXPECT_THAT(c.stage_axes[PrimitiveId(1)], ElementsAre(0, 3, 1));
    EXPECT_THAT(c.products, ElementsAre(PrimitiveId(0), PrimitiveId(1)));
    EXPECT_THAT(c.reduced, ElementsAre(false, true, true, false));
    EXPECT_THAT(c.batch, ElementsAre(false, false, false, false));
    EXPECT_THAT(c.tiled, ElementsAre(0, 1, 2, 3));
    EXPECT_EQ(c.axes[3].name, "x3");
    EXPECT_TRUE(c.axes[3].extent.is_constant(6));
}

TEST(MakeChain, takes_the_quotient_of_a_softmax_out_of_the_sum_behind_it) {
    const Program original = attention(2, 6, 8, 3, 5);
    const Chain c = given(make_chain(original));
    EXPECT_THAT(stages_of(c.stages),
                ElementsAre(HasSubstr("c = "), HasSubstr("r = "), HasSubstr("p = "), HasSubstr("s = "),
                            "e.sum = [2, 6, 5] sum(i3 < 8) mul(@0, @1) where @0 = p[i0, i1, i3], @1 = v[i0, i3, i2]",
                            "e = [2, 6, 5] div(@0, @1) where @0 = e.sum[i0, i1, i2], @1 = s[i0, i1, 0]"));
    ASSERT_EQ(verify(c.stages), std::vector<std::string>());
    const std::vector<Tensor> inputs = random_inputs(original, 1);
    EXPECT_LE(largest_difference(interpret(original, inputs), interpret(c.stages, inputs)), 1e-6);
}

/// Loops around a sum add to it: 16 bits would round each step.
TEST(MakeChain, gives_a_result_of_16_bits_a_sum_of_32) {
    const Program original = parse_program(R"(program chain {
  input q: f16[16, 8]
  input k: f16[12, 8]
  input v: f16[12, 6]
  c: f32[16, 12] = [16, 12] sum(i2 < 8) mul(@0, @1) where @0 = q[i0, i2], @1 = k[i1, i2]
  o: f16[16, 6] = [16, 6] sum(i2 < 12) mul(@0, @1) where @0 = c[i0, i2], @1 = v[i2, i1]
  output o
})");
    const Chain c = given(make_chain(original));
    EXPECT_THAT(stages_of(c.stages), ElementsAre(HasSubstr("c = "), HasSubstr("o.sum = [16, 6] sum(i2 < 12)"),
                                                 "o = [16, 6] @0 where @0 = o.sum[i0, i1]"));
    const std::vector<Tensor> inputs = random_inputs(original, 1);
    EXPECT_LE(largest_difference(interpret(original, inputs), interpret(c.stages, inputs)), 1e-6);
}

TEST(MakeChain, heads_of_an_attention_are_a_batch) {
    const Chain c = given(make_chain(attention(2, 6, 8, 3, 5)));
    EXPECT_EQ(c.products.size(), 2u);
    const std::vector<size_t>& scores = c.stage_axes[c.products[0]];
    const std::vector<size_t>& sum = c.stage_axes[c.products[1]];
    EXPECT_EQ(scores[0], sum[0]);  // head
    EXPECT_EQ(scores[1], sum[1]);  // row
    EXPECT_EQ(scores[2], sum[3]);  // column: of the first's result and the second's sum
    EXPECT_TRUE(c.batch[scores[0]]);
    EXPECT_FALSE(c.batch[scores[1]]);  // a row is multiplied with all columns
    EXPECT_THAT(c.tiled, ElementsAre(scores[1], scores[2], scores[3], sum[2]));
    EXPECT_EQ(c.extents[scores[3]], 3);
    EXPECT_EQ(c.extents[sum[2]], 5);
    EXPECT_TRUE(c.reduced[scores[2]]);
}

TEST(MakeChain, of_rewritten_stages_computes_what_the_kernel_computes) {
    for (const Program& p : small_chains()) {
        const Chain c = given(make_chain(p));
        ASSERT_EQ(verify(c.stages), std::vector<std::string>()) << print(c.stages);
        const std::vector<Tensor> inputs = random_inputs(p, 2);
        EXPECT_LE(largest_difference(interpret(p, inputs), interpret(c.stages, inputs)), 1e-5) << print(c.stages);
    }
}

TEST(MakeChain, a_quotient_that_moves_along_the_sum_stays_in_it) {
    const Chain c = given(make_chain(parse_program(R"(program t {
  input a: f32[6, 4]
  input b: f32[4, 8]
  input s: f32[8]
  input d: f32[8, 5]
  c: f32[6, 8] = [6, 8] sum(i2 < 4) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  w: f32[6, 8] = [6, 8] div(@0, @1) where @0 = c[i0, i1], @1 = s[i1]
  e: f32[6, 5] = [6, 5] sum(i2 < 8) mul(@0, @1) where @0 = w[i0, i2], @1 = d[i2, i1]
  output e
})")));
    EXPECT_THAT(stages_of(c.stages), ElementsAre(HasSubstr("c = "), HasSubstr("w = "), HasSubstr("e = ")));
}

TEST(MakeChain, a_normalisation_that_scales_along_the_sum_stays_in_front_of_its_product) {
    for (const Program& p : small_chains())
        if (p.name == "norm") {
            EXPECT_EQ(given(make_chain(p)).stages.primitives.size(), p.primitives.size());
        }
}

TEST(MakeChain, axes_of_one_point_are_not_tiled) {
    const Chain one = given(make_chain(attention(1, 6, 8, 3, 5)));
    ASSERT_EQ(one.tiled.size(), 4u);
    for (const size_t a : one.tiled) EXPECT_GT(one.extents[a], 1);
}

TEST(MakeChain, a_quotient_that_somebody_else_sees_stays) {
    Program p = attention(1, 6, 8, 3, 5);
    p.outputs.push_back(p.primitives[PrimitiveId(4)].outputs[0]);
    const Chain c = given(make_chain(p));
    EXPECT_EQ(c.stages.primitives.size(), p.primitives.size());
}

TEST(MakeChain, is_nothing_with_fewer_than_two_products) {
    EXPECT_FALSE(make_chain(parse_program(R"(program softmax {
  input a: f32[6, 4]
  input b: f32[4, 8]
  c: f32[6, 8] = [6, 8] sum(i2 < 4) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  r: f32[6] = [6] max(i1 < 8) @0 where @0 = c[i0, i1]
  p: f32[6, 8] = [6, 8] exp(sub(@0, @1)) where @0 = c[i0, i1], @1 = r[i0]
  output p
})")));
}

TEST(MakeChain, is_nothing_where_a_stage_is_a_sum_weighed_by_known_numbers) {
    // Two products, then sums and differences of pairs of rows.
    const auto chain_of = [](const std::string& sums) {
        return make_chain(parse_program(R"(program transformed {
  input a: f32[12, 8]
  input b: f32[8, 16]
  input d: f32[16, 8]
  c: f32[12, 16] = [12, 16] sum(i2 < 8) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  e: f32[12, 8] = [12, 8] sum(i2 < 16) mul(@0, @1) where @0 = c[i0, i2], @1 = d[i2, i1]
  y: f32[2, 6, 8] = [2, 6, 8] sum(i3 < 2) )" +
                                        sums + R"( where @0 = e[2*i1 + i3, i2]
  output y
})"));
    };
    EXPECT_TRUE(chain_of("@0"));
    EXPECT_FALSE(chain_of("weigh(table{1, 1, 1, -1}(index(2*i0 + i3)), @0)"));
}

TEST(IsLink, is_one_of_a_batch_of_products_with_a_vector) {
    const auto link = [](const std::string& expression) {
        const Program p =
            parse_program("program t {\n  input q: f32[4, 6]\n  input k: f32[4, 8, 6]\n  input x: f32[4, 12]\n" +
                          expression + "\n  output c\n}");
        return is_link(*p.primitives[PrimitiveId(0)].expr());
    };
    EXPECT_TRUE(link("c: f32[4, 8] = [4, 8] sum(i2 < 6) mul(@0, @1) where @0 = q[i0, i2], @1 = k[i0, i1, i2]"));
    // one vector for the whole batch: the batch alone would give tasks
    EXPECT_FALSE(link("c: f32[8] = [8] sum(i1 < 6) mul(@0, @1) where @0 = q[0, i1], @1 = k[0, i0, i1]"));
    // windows along each channel are no matrix-vector products
    EXPECT_FALSE(link("c: f32[4, 7] = [4, 7] sum(i2 < 6) mul(@0, @1) where @0 = x[i0, i1 + i2], @1 = q[i0, i2]"));
}

TEST(MakeChain, open_extents_are_always_cut) {
    for (const Program& p : dynamic_chains()) {
        const Chain c = given(make_chain(p), print(p));
        EXPECT_NE(std::count(c.open.begin(), c.open.end(), true), 0);
        for (size_t a = 0; a < c.axes.size(); ++a) EXPECT_EQ(c.open[a], !c.axes[a].extent.is_constant());
    }
}

TEST(MakeChain, heads_that_share_keys_are_rows) {
    const Program p = grouped_attention(6, 3, 1, 9, 4, 5);
    const Chain c = given(make_chain(p));
    ASSERT_EQ(verify(c.stages), std::vector<std::string>()) << print(c.stages);
    EXPECT_THAT(stages_of(c.stages)[0],
                HasSubstr("where @0 = q[3*i0 + i1, 0, i4], @1 = k[i0, i3, i4]"));  // [2, 3, 1, 9], sum over 4
    const std::vector<size_t>& scores = c.stage_axes[c.products[0]];
    EXPECT_TRUE(c.batch[scores[0]]);
    EXPECT_FALSE(c.batch[scores[1]]);
    EXPECT_EQ(c.extents[scores[1]], 3);
    EXPECT_NE(std::find(c.tiled.begin(), c.tiled.end(), scores[1]), c.tiled.end());
    EXPECT_TRUE(is_product(*c.stages.primitives[c.products[0]].expr()));
    EXPECT_TRUE(is_product(*c.stages.primitives[c.products[1]].expr()));
    const std::vector<Tensor> inputs = random_inputs(p, 1);
    EXPECT_LE(largest_difference(interpret(p, inputs), interpret(c.stages, inputs)), 1e-6);
}

TEST(MakeChain, packed_panels_are_no_groups) {
    const Program p = parse_program(R"(program t {
  input x: f32[9, 6]
  input w0: f32[2, 6, 8]
  input w1: f32[16, 5]
  c: f32[9, 16] = [9, 16] sum(i2 < 6) mul(@0, @1) where @0 = x[i0, i2], @1 = w0[i1 // 8, i2, i1 % 8]
  e: f32[9, 5] = [9, 5] sum(i2 < 16) mul(@0, @1) where @0 = c[i0, i2], @1 = w1[i2, i1]
  output e
})");
    EXPECT_EQ(stages_of(given(make_chain(p)).stages), stages_of(p));
}

TEST(MakeChain, one_product_is_a_chain_behind_statistics_of_its_rows) {
    EXPECT_TRUE(make_chain(norm_product("layer", "9", 12, 8)));
    EXPECT_FALSE(make_chain(parse_program(R"(program t {
  input x: f32[9, 8]
  input w: f32[8, 12]
  n: f32[9, 8] = [9, 8] tanh(@0) where @0 = x[i0, i1]
  y: f32[9, 12] = [9, 12] sum(i2 < 8) mul(@0, @1) where @0 = n[i0, i2], @1 = w[i2, i1]
  output y
})")));
}

TEST(MakeChain, is_nothing_where_two_axes_of_a_stage_are_one) {
    // Z = (A B)(A B): the reduction axis of the second product is both axes of the first.
    EXPECT_FALSE(make_chain(parse_program(R"(program t {
  input a: f32[8, 4]
  input b: f32[4, 8]
  c: f32[8, 8] = [8, 8] sum(i2 < 4) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  e: f32[8, 8] = [8, 8] sum(i2 < 8) mul(@0, @1) where @0 = c[i0, i2], @1 = c[i2, i1]
  output e
})")));
}

TEST(MakeChain, is_nothing_where_the_products_are_not_connected) {
    EXPECT_FALSE(make_chain(parse_program(R"(program t {
  input a: f32[8, 4]
  input b: f32[4, 6]
  input d: f32[5, 9]
  input e: f32[9, 7]
  c: f32[8, 6] = [8, 6] sum(i2 < 4) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  f: f32[5, 7] = [5, 7] sum(i2 < 9) mul(@0, @1) where @0 = d[i0, i2], @1 = e[i2, i1]
  output c, f
})")));
}

TEST(SplitGroups, a_tensor_whose_last_group_is_not_whole_stays_in_one_piece) {
    // Rows 4 i0 + i1 of seven: the eighth is padding, so groups of four do not divide them.
    const Program stages = parse_program(R"TW(program padded {
  input a: f32[7, 16]
  input b: f32[16, 16]
  input w: f32[2, 16, 8]
  l: f32[7, 16] = [7, 16] sum(i2 < 16) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]  ; l ""
  y: f32[2, 4, 8] = [2, 4, 8] sum(i3 < 16) mul(@0, @1) where @0 = l[4 * i0 + i1, i3] when 6 - 4 * i0 - i1 >= 0 else 0.0, @1 = w[i0, i3, i2]  ; y ""
  output y
})TW");
    EXPECT_EQ(print(split_groups(stages)), print(stages));
}

}  // namespace
}  // namespace tilewright::chain
