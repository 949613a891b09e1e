// A split reduction gives the results of the whole one, also on rows that are hard for a softmax.

#include "schedule/chain/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "cost/given_test.h"
#include "cost/target_with_test.h"
#include "program/random_program.h"
#include "schedule/chain/chains_test.h"
#include "schedule/chain/realise.h"
#include "tile/online_cases_test.h"

namespace tilewright::chain {
namespace {

using testing::ElementsAre;

std::vector<std::string> all_stages(const Program& p) {
    std::vector<std::string> out;
    for (const Primitive& q : p.primitives) out.push_back(p.values[q.outputs[0]].name + " = " + print(p, *q.expr()));
    return out;
}

std::vector<Tensor> inputs_of(const Program& p, const std::map<std::string, Tensor>& known) {
    std::vector<Tensor> out;
    for (const ValueId v : p.inputs) out.push_back(known.at(p.values[v].name));
    return out;
}

/// The outputs of both kernels, the first run by `run`.
template <class Run>
std::vector<Tensor> outputs_of(const SplitSum& s, const Program& p, const std::vector<Tensor>& inputs, const Run& run) {
    std::map<std::string, Tensor> known;
    for (size_t i = 0; i < inputs.size(); ++i) known[p.values[p.inputs[i]].name] = inputs[i];
    const std::vector<Tensor> parts = run(s.partial, inputs_of(s.partial, known));
    for (size_t i = 0; i < parts.size(); ++i) known[s.partial.values[s.partial.outputs[i]].name] = parts[i];
    return interpret(s.merge, inputs_of(s.merge, known));
}

std::vector<Tensor> outputs_of(const SplitSum& s, const Program& p, const std::vector<Tensor>& inputs) {
    return outputs_of(s, p, inputs,
                      [](const Program& partial, const std::vector<Tensor>& x) { return interpret(partial, x); });
}

void right(const SplitSum& s, const Program& p) {
    ASSERT_EQ(verify(s.partial), std::vector<std::string>()) << print(s.partial);
    ASSERT_EQ(verify(s.merge), std::vector<std::string>()) << print(s.merge);
    const std::vector<Tensor> inputs = random_inputs(p, 7);
    EXPECT_LE(largest_difference(interpret(p, inputs), outputs_of(s, p, inputs)), 1e-5)
        << print(s.partial) << print(s.merge);
}

TEST(SplitSum, of_a_product_has_an_axis_of_parts_and_a_sum_over_it) {
    const Program p = parse_program(R"(program product {
  input a: f32[2, 96]
  input b: f32[96, 5]
  input bias: f32[5]
  c: f32[2, 5] = [2, 5] sum(i2 < 96) mul(@0, @1) then max(add(acc, @2), 0.0) where @0 = a[i0, i2], @1 = b[i2, i1], @2 = bias[i1]
  output c
})");
    const SplitSum s = given(split_sum(p, 2));
    EXPECT_EQ(s.parts, 2);
    EXPECT_THAT(all_stages(s.partial),
                ElementsAre("c.part = [2, 2, 5] sum(i3 < 48) mul(@0, @1) where @0 = a[i1, 48*i0 + "
                            "i3], @1 = b[48*i0 + i3, i2]"));
    EXPECT_THAT(all_stages(s.merge), ElementsAre("c = [2, 5] sum(i2 < 2) @0 then max(add(acc, @1), 0.0) where @0 = "
                                                 "c.part[i2, i0, i1], @1 = bias[i1]"));
    right(s, p);
}

TEST(SplitSum, of_an_attention_scales_each_part_to_the_maximum_of_the_row) {
    const Program p = attention(2, 3, 64, 4, 5);
    const SplitSum s = given(split_sum(p, 4));
    EXPECT_EQ(s.parts, 4);
    EXPECT_THAT(
        all_stages(s.partial),
        ElementsAre("c = [4, 2, 3, 16] sum(i4 < 4) mul(@0, @1) then mul(acc, 0.5) where @0 = q[i1, i2, i4], @1 = "
                    "k[i1, 16*i0 + i3, i4]",
                    "r.part = [4, 2, 3, 1] max(i4 < 16) @0 where @0 = c[i0, i1, i2, i4]",
                    "p = [4, 2, 3, 16] exp(sub(@0, @1)) where @0 = c[i0, i1, i2, i3], @1 = r.part[i0, i1, i2, 0]",
                    "s.part = [4, 2, 3, 1] sum(i4 < 16) @0 where @0 = p[i0, i1, i2, i4]",
                    "e.sum.part = [4, 2, 3, 5] sum(i4 < 16) mul(@0, @1) where @0 = p[i0, i1, i2, i4], @1 = "
                    "v[i1, 16*i0 + i4, i3]"));
    right(s, p);
}

TEST(SplitSum, takes_the_smallest_divisor_that_is_enough) {
    const auto parts = [](int64_t n, int64_t wanted) {
        const auto s = split_sum(attention(1, 1, n, 4, 5), wanted);
        return s ? s->parts : 0;
    };
    EXPECT_EQ(parts(64, 2), 2);
    EXPECT_EQ(parts(75, 2), 3);
    EXPECT_EQ(parts(61, 2), 0);   // a prime
    EXPECT_EQ(parts(24, 2), 0);   // parts of fewer than 16
    EXPECT_EQ(parts(143, 2), 0);  // 11 * 13: more than four times `parts`
}

TEST(SplitSum, refuses_what_a_part_cannot_know) {
    // A mean along the axis that the product reduces, computed from the same values.
    EXPECT_FALSE(split_sum(parse_program(R"(program centred {
  input x: f32[2, 64]
  input y: f32[2, 64]
  input w: f32[64, 4]
  t: f32[2, 64] = [2, 64] add(@0, @1) where @0 = x[i0, i1], @1 = y[i0, i1]
  m: f32[2, 1] = [2] -> [i0, 0] sum(i1 < 64) @0 then div(acc, 64.0) where @0 = t[i0, i1]
  d: f32[2, 64] = [2, 64] sub(@0, @1) where @0 = t[i0, i1], @1 = m[i0, 0]
  e: f32[2, 4] = [2, 4] sum(i2 < 64) mul(@0, @1) where @0 = d[i0, i2], @1 = w[i2, i1]
  output e
})"),
                           2));
    // Probabilities that are also an output.
    Program p = attention(1, 1, 64, 4, 5);
    p.outputs.push_back(p.primitives[PrimitiveId(4)].outputs[0]);
    EXPECT_FALSE(split_sum(p, 2));
    // A dynamic extent.
    EXPECT_FALSE(split_sum(dynamic_chains().at(3), 2));
}

TEST(SplitSum, of_every_kind_of_chain_computes_it) {
    int cut = 0;
    for (const Program& p :
         {attention(3, 1, 48, 4, 5), attention(1, 1, 48, 4, 5), attention(2, 3, 64, 4, 5, "add(mul(acc, 0.5), @2)"),
          attention(1, 32, 32, 4, 4, "select(ge(index(i1), index(i2)), mul(acc, 0.5), -inf)"),
          grouped_attention(6, 3, 1, 48, 4, 5), grouped_attention(4, 4, 2, 32, 3, 4), two_products(3, 64, 5, 4),
          three_products(2, 33, 5, 64, 4), norm_product("layer", "2", 12, 64), norm_product("rms", "$rows", 5, 48),
          parse_program("program max {\n  input x: f32[3, 64]\n  y: f32[3] = [3] max(i1 < 64) @0 then neg(acc) where "
                        "@0 = x[i0, i1]\n  output y\n}"),
          parse_program(
              "program gathered {\n  input x: f32[80, 3]\n  input i: i64[64]\n  input w: f32[64]\n  y: f32[3] "
              "= [3] sum(i1 < 64) mul(@1, @2) where @0 = i[i1], @1 = x[@0, i0], @2 = w[i1]\n  output y\n}")})
        if (const auto s = split_sum(p, 2)) {
            ++cut;
            right(*s, p);
        } else {
            ADD_FAILURE() << p.name << " is not cut";
        }
    EXPECT_EQ(cut, 12);
}

/// 8 rows that are hard for a softmax cut into parts of 16 columns.
std::vector<Tensor> hard_inputs_of(const Program& p) {
    std::vector<Tensor> inputs = random_inputs(p, 5);
    Tensor& mask = inputs.back();
    const int64_t columns = mask.shape()[1];
    for (int64_t n = 0; n < columns; ++n) {
        const bool first = n < 16, last = n >= columns - 16;
        mask.set(n, 3);                                                 // all equal before the scores are added
        mask.set(columns + n, n % 2 == 0 ? 1e4 : -1e4);                 // huge range
        mask.set(2 * columns + n, n + 1 < columns ? -kInf : 0);         // all but the last masked
        mask.set(3 * columns + n, -kInf);                               // all masked
        mask.set(4 * columns + n, first ? -kInf : 0);                   // the first part masked
        mask.set(5 * columns + n, last ? -kInf : -1e4);                 // the last part masked
        mask.set(6 * columns + n, n == 20 ? std::nan("") : 0);          // a NaN in the second part
        mask.set(7 * columns + n, n == 20 ? kInf : first ? -kInf : 0);  // an infinity, and a masked part
    }
    return inputs;
}

TEST(SplitSum, gives_on_hard_rows_what_whole_rows_give) {
    for (const std::string safe : {"exp(sub(@0, @1))", "select(eq(@0, -inf), 0.0, exp(sub(@0, @1)))"}) {
        std::string text = print(attention(2, 8, 64, 4, 5, "add(mul(acc, 0.5), @2)"));
        const std::string plain = "exp(sub(@0, @1))";
        text.replace(text.find(plain), plain.size(), safe);
        const Program p = parse_program(text);
        ASSERT_EQ(p.values[p.inputs.back()].name, "mask");
        const std::vector<Tensor> inputs = hard_inputs_of(p);
        const std::vector<Tensor> expected = interpret(p, inputs);
        for (const int64_t parts : {2, 4}) {
            const SplitSum s = given(split_sum(p, parts));
            EXPECT_LE(largest_difference(expected, outputs_of(s, p, inputs)), 1e-5) << safe << " in " << parts;
        }
    }
}

TEST(SplitSum, gives_on_hard_rows_in_every_schedule_of_its_parts_what_whole_rows_give) {
    const Program p = attention(1, 8, 64, 4, 5, "add(mul(acc, 0.5), @2)");
    const std::vector<Tensor> inputs = hard_inputs_of(p);
    const std::vector<Tensor> expected = interpret(p, inputs);
    const SplitSum s = given(split_sum(p, 2));
    const Chain c = given(make_chain(s.partial));
    const std::vector<TilingExpression> expressions = make_space(c).expressions;
    std::mt19937_64 rng(41);
    int run = 0, online = 0;
    for (int k = 0; k < 200 && run < 60; ++k) {
        Candidate candidate{expressions[rng() % expressions.size()], {}};
        for (const size_t a : c.tiled) {
            const auto extent = static_cast<uint64_t>(c.extents[a]);
            candidate.tiles.push_back(static_cast<int64_t>(rng() % 2 == 0 ? extent : 1 + rng() % extent));
        }
        const Target target =
            test::target_with({.lanes = 4, .vector_registers = 16, .workers = 1 + static_cast<int>(rng() % 4)});
        const auto t = realise(c, candidate, target);
        if (!t) continue;
        ++run;
        online += print(*t).find(" online") != std::string::npos ? 1 : 0;
        ASSERT_EQ(verify(*t), std::vector<std::string>()) << print(*t);
        ASSERT_LE(largest_difference(expected, outputs_of(s, p, inputs,
                                                          [&](const Program&, const std::vector<Tensor>& x) {
                                                              return interpret(*t, x, {});
                                                          })),
                  1e-5)
            << print(*t);
    }
    EXPECT_EQ(run, 60);
    EXPECT_GT(online, 10);
}

}  // namespace
}  // namespace tilewright::chain
