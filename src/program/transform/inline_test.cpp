#include "program/transform/inline.h"

#include <gtest/gtest.h>

#include <random>

#include "program/random_program.h"
#include "program/transform/axes.h"
#include "program/transform/tidy.h"

namespace tilewright {
namespace {

/// The expression of the primitive that computes `name`.
const TensorExpr& expr_of(const Program& p, std::string_view name) {
    const auto producers = p.producers();
    for (const ValueId v : p.values.ids())
        if (p.values[v].name == name) return *p.primitives[producers[v]].expr();
    throw std::out_of_range(std::string(name));
}

size_t access_of(const Program& p, const TensorExpr& e, std::string_view name) {
    for (size_t k = 0; k < e.accesses.size(); ++k)
        if (p.values[e.accesses[k].value].name == name) return k;
    throw std::out_of_range(std::string(name));
}

const Value& value_of(const Program& p, std::string_view name) {
    for (const Value& v : p.values)
        if (v.name == name) return v;
    throw std::out_of_range(std::string(name));
}

/// print() of p inlined into c, where the program text defines p and then c.
std::string inlined(std::string_view text) {
    const Program p = parse_program(text);
    const TensorExpr& c = expr_of(p, "c");
    const auto r = inline_producer(c, access_of(p, c, "p"), expr_of(p, "p"), value_of(p, "p"));
    return r ? print(p, *r) : "refused";
}

std::string fused(std::string_view text) {
    const Program p = parse_program(text);
    const TensorExpr& c = expr_of(p, "c");
    const auto r = fuse_epilogue(expr_of(p, "p"), c, access_of(p, c, "p"), value_of(p, "p"));
    return r ? print(p, *r) : "refused";
}

TEST(InlineProducer, substitutes_index_maps) {
    EXPECT_EQ(inlined(R"(program t {
  input a: f32[8]
  input b: f32[4]
  p: f32[8] = [8] exp(@0) where @0 = a[i0]
  c: f32[4, 8] = [4, 8] mul(@0, @1) where @0 = p[i1], @1 = b[i0]
  output c
})"),
              "[4, 8] mul(exp(@0), @1) where @0 = a[i1], @1 = b[i0]");
}

TEST(InlineProducer, composed_maps_are_simplified) {
    EXPECT_EQ(inlined(R"(program t {
  input a: f32[4, 64]
  p: f32[256] = [256] @0 where @0 = a[i0 // 64, i0 % 64]
  c: f32[4, 8, 8] = [4, 8, 8] neg(@0) where @0 = p[64*i0 + 8*i1 + i2]
  output c
})"),
              "[4, 8, 8] neg(@0) where @0 = a[i0, 8*i1 + i2]");
}

TEST(InlineProducer, into_a_reduction_and_its_equal_reads) {
    EXPECT_EQ(inlined(R"(program t {
  input a: f32[8, 4]
  p: f32[8, 4] = [8, 4] sub(@0, @1) where @0 = a[i0, i1], @1 = a[0, i1]
  c: f32[8] = [8] sum(i1 < 4) mul(@0, @1) where @0 = p[i0, i1], @1 = a[i0, i1]
  output c
})"),
              "[8] sum(i1 < 4) mul(sub(@0, @1), @0) where @0 = a[i0, i1], @1 = a[0, i1]");
}

TEST(InlineProducer, a_select_preserves_the_padding_of_the_consumer) {
    EXPECT_EQ(inlined(R"(program t {
  input a: f32[8]
  p: f32[8] = [8] exp(@0) where @0 = a[i0]
  c: f32[10] = [10] @0 where @0 = p[i0 - 2] when i0 - 2 >= 0 else 7
  output c
})"),
              "[10] select(ge(index(i0 - 2), 0), exp(@0), 7.0) where @0 = a[i0 - 2] when i0 - 2 >= 0 else 0");
}

TEST(InlineProducer, needs_no_select_if_the_producer_yields_the_fill) {
    const std::string padded = R"(
  c: f32[10] = [10] @0 where @0 = p[i0 - 2] when i0 - 2 >= 0 else 0
  output c
})";
    EXPECT_EQ(inlined("program t {\n input a: f32[8]\n p: f32[8] = [8] max(@0, 0.0) where @0 = a[i0]" + padded),
              "[10] max(@0, 0.0) where @0 = a[i0 - 2] when i0 - 2 >= 0 else 0");
    EXPECT_EQ(inlined("program t {\n input a: f32[8]\n p: f32[8] = [8] mul(@0, -2.0) where @0 = a[i0]" + padded),
              "[10] mul(@0, -2.0) where @0 = a[i0 - 2] when i0 - 2 >= 0 else -0");
    EXPECT_EQ(inlined("program t {\n input a: f32[8]\n p: f32[8] = [8] log(@0) where @0 = a[i0]" + padded),
              "[10] log(@0) where @0 = a[i0 - 2] when i0 - 2 >= 0 else 1");
}

TEST(InlineProducer, implied_conditions_are_dropped) {
    // a slice of a pad: the remaining padding is decided at compile time
    EXPECT_EQ(inlined(R"(program t {
  input a: f32[8]
  p: f32[12] = [12] @0 where @0 = a[i0 - 2] when i0 - 2 >= 0 and 9 - i0 >= 0 else 3
  c: f32[8] = [8] @0 where @0 = p[i0 + 4]
  output c
})"),
              "[8] @0 where @0 = a[i0 + 2] when -i0 + 5 >= 0 else 3");
}

TEST(InlineProducer, a_read_that_is_never_valid_becomes_its_fill) {
    EXPECT_EQ(inlined(R"(program t {
  input a: f32[8]
  p: f32[12] = [12] @0 where @0 = a[i0 - 2] when i0 - 2 >= 0 and 9 - i0 >= 0 else 3
  c: f32[2] = [2] exp(@0) where @0 = p[i0]
  output c
})"),
              "[2] 20.085536923187668");
}

TEST(InlineProducer, indices_read_from_a_value_become_part_of_the_index) {
    EXPECT_EQ(inlined(R"(program t {
  input ids: i32[4]
  input table: f32[9, 2]
  p: i64[4] = [4] add(i64(@0), 1) where @0 = ids[i0]
  c: f32[4, 2] = [4, 2] @1 where @0 = p[i0], @1 = table[@0 % 9, i1]
  output c
})"),
              "[4, 2] @1 where @0 = ids[i0], @1 = table[(@0 + 1) % 9, i1]");
}

TEST(InlineProducer, a_value_used_as_an_index_stays_unless_it_is_an_index_expression) {
    EXPECT_EQ(inlined(R"(program t {
  input ids: f32[4]
  input table: f32[9, 2]
  p: i64[4] = [4] i64(@0) where @0 = ids[i0]
  c: f32[4, 2] = [4, 2] @1 where @0 = p[i0], @1 = table[@0 % 9, i1]
  output c
})"),
              "refused");
}

TEST(InlineProducer, gathered_operands_are_read_through_the_same_indices) {
    EXPECT_EQ(inlined(R"(program t {
  input ids: i64[4]
  input table: f32[9, 2]
  p: f32[9, 2] = [9, 2] exp(@0) where @0 = table[i0, i1]
  c: f32[4, 2] = [4, 2] @1 where @0 = ids[i0], @1 = p[@0 % 9, i1]
  output c
})"),
              "[4, 2] exp(@1) where @0 = ids[i0], @1 = table[@0 % 9, i1]");
}

TEST(InlineProducer, a_cast_preserves_half_precision_intermediates) {
    EXPECT_EQ(inlined(R"(program t {
  input a: f32[8]
  p: f16[8] = [8] exp(@0) where @0 = a[i0]
  c: f32[8] = [8] neg(@0) where @0 = p[i0]
  output c
})"),
              "[8] neg(f16(exp(@0))) where @0 = a[i0]");
}

TEST(InlineProducer, reductions_and_eight_bit_floats_are_rejected) {
    EXPECT_EQ(inlined(R"(program t {
  input a: f32[8, 4]
  p: f32[8] = [8] sum(i1 < 4) @0 where @0 = a[i0, i1]
  c: f32[8] = [8] neg(@0) where @0 = p[i0]
  output c
})"),
              "refused");
    EXPECT_EQ(inlined(R"(program t {
  input a: f32[8]
  p: f8e4m3fn[8] = [8] @0 where @0 = a[i0]
  c: f32[8] = [8] neg(@0) where @0 = p[i0]
  output c
})"),
              "refused");
}

TEST(InlineProducer, a_producer_written_through_an_output_index_is_inverted) {
    const Program p = parse_program(R"(program t {
  input a: f32[6, 2]
  p: f32[3, 4] = [6, 2] -> [i0 // 2, i0 % 2 * 2 + i1] exp(@0) where @0 = a[i0, i1]
  c: f32[4, 3] = [4, 3] neg(@0) where @0 = p[i1, i0]
  output c
})");
    const TensorExpr& c = expr_of(p, "c");
    const auto r = inline_producer(c, 0, expr_of(p, "p"), value_of(p, "p"));
    ASSERT_TRUE(r);
    Program q = p;
    q.primitives[q.producers()[q.outputs[0]]].kind = *r;
    const auto inputs = random_inputs(p, 1);
    EXPECT_LT(largest_difference(interpret(p, inputs, {.exact = true}), interpret(q, inputs, {.exact = true})), 1e-12);
}

TEST(FuseEpilogue, bias_and_activation_through_a_transposition) {
    EXPECT_EQ(fused(R"(program t {
  input a: f32[8, 16]
  input b: f32[16, 4]
  input d: f32[8]
  p: f32[8, 4] = [8, 4] sum(i2 < 16) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  c: f32[4, 8] = [4, 8] max(add(@0, @1), 0.0) where @0 = p[i1, i0], @1 = d[i1]
  output c
})"),
              "[4, 8] sum(i2 < 16) mul(@0, @1) then max(add(acc, @2), 0.0) where @0 = a[i1, i2], @1 = b[i2, i0], "
              "@2 = d[i1]");
}

TEST(FuseEpilogue, through_a_reshape_into_heads) {
    EXPECT_EQ(fused(R"(program t {
  input a: f32[8, 16]
  input b: f32[16, 12]
  p: f32[8, 12] = [8, 12] sum(i2 < 16) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  c: f32[3, 8, 4] = [3, 8, 4] @0 where @0 = p[i1, 4*i0 + i2]
  output c
})"),
              "[3, 8, 4] sum(i3 < 16) mul(@0, @1) where @0 = a[i1, i3], @1 = b[i3, 4*i0 + i2]");
}

TEST(FuseEpilogue, extends_an_existing_epilogue) {
    EXPECT_EQ(fused(R"(program t {
  input a: f32[8, 16]
  input d: f32[8]
  p: f32[8] = [8] sum(i1 < 16) @0 then mul(acc, @1) where @0 = a[i0, i1], @1 = d[i0]
  c: f32[4] = [4] exp(@0) where @0 = p[2*i0]
  output c
})"),
              "[4] sum(i1 < 16) @0 then exp(mul(acc, @1)) where @0 = a[2*i0, i1], @1 = d[2*i0]");
}

TEST(FuseEpilogue, rejects_repetition_conditions_and_second_reads) {
    const std::string head = R"(program t {
  input a: f32[8, 16]
  p: f32[8] = [8] sum(i1 < 16) @0 where @0 = a[i0, i1]
)";
    EXPECT_EQ(fused(head + "c: f32[8, 8] = [8, 8] exp(@0) where @0 = p[i0]\n output c }"), "refused");
    EXPECT_EQ(fused(head + "c: f32[9] = [9] exp(@0) where @0 = p[i0] when 7 - i0 >= 0 else 0\n output c }"), "refused");
    EXPECT_EQ(fused(head + "c: f32[8] = [8] add(@0, @1) where @0 = p[i0], @1 = p[7 - i0]\n output c }"), "refused");
}

TEST(Axes, a_divided_axis_is_split) {
    const Program p = parse_program(R"(program t {
  input a: f32[12, 5, 64]
  input b: f32[768]
  c: f32[5, 768] = [5, 768] mul(@0, @1) where @0 = a[i1 // 64, i0, i1 % 64], @1 = b[i1]
  output c
})");
    EXPECT_EQ(print(p, normalize_axes(expr_of(p, "c"))),
              "[5, 12, 64] -> [i0, 64*i1 + i2] mul(@0, @1) where @0 = a[i1, i0, i2], @1 = b[64*i1 + i2]");
}

TEST(Axes, symbolic_extents_split_too) {
    const Program p = parse_program(R"(program t {
  input a: f32[$b, $s, 3]
  c: f32[$b*$s, 3] = [$b*$s, 3] @0 where @0 = a[i0 // $s, i0 % $s, i1]
  output c
})");
    EXPECT_EQ(print(p, normalize_axes(expr_of(p, "c"))), "[$b, $s, 3] -> [$s*i0 + i1, i2] @0 where @0 = a[i0, i1, i2]");
}

TEST(Axes, unit_axes_are_removed) {
    const Program p = parse_program(R"(program t {
  input a: f32[1, 5, 1, 3]
  c: f32[1, 5, 1] = [1, 5, 1] sum(i3 < 3) @0 where @0 = a[0, i1, i2, i3]
  output c
})");
    EXPECT_EQ(print(p, normalize_axes(expr_of(p, "c"))), "[5] -> [0, i0, 0] sum(i1 < 3) @0 where @0 = a[0, i0, 0, i1]");
}

TEST(Axes, the_last_unit_reduction_axis_stays) {
    const auto normalized = [](const std::string& expression) {
        const Program p =
            parse_program("program t {\n  input a: f32[5, 1, 1, 3]\n  c: " + expression + "\n  output c\n}");
        return print(p, normalize_axes(expr_of(p, "c")));
    };
    EXPECT_EQ(normalized("f32[5, 1] = [5, 1] sum(i2 < 1, i3 < 1) @0 where @0 = a[i0, i2, i3, 0]"),
              "[5] -> [i0, 0] sum(i1 < 1) @0 where @0 = a[i0, 0, 0, 0]");
    EXPECT_EQ(normalized("f32[5] = [5] sum(i1 < 1, i2 < 3) @0 where @0 = a[i0, i1, i1, i2]"),
              "[5] sum(i1 < 3) @0 where @0 = a[i0, 0, 0, i1]");
    EXPECT_EQ(normalized("f32[5] = [5] sum(i1 < 3, i2 < 1) @0 where @0 = a[i0, i2, i2, i1]"),
              "[5] sum(i1 < 3) @0 where @0 = a[i0, 0, 0, i1]");
}

TEST(Axes, axes_used_as_one_are_merged) {
    const Program p = parse_program(R"(program t {
  input a: f32[4, 30]
  c: f32[4] = [4] sum(i1 < 5, i2 < 6) @0 where @0 = a[i0, 6*i1 + i2]
  output c
})");
    EXPECT_EQ(print(p, normalize_axes(expr_of(p, "c"))), "[4] sum(i1 < 30) @0 where @0 = a[i0, i1]");
}

TEST(Axes, axes_can_be_split_explicitly) {
    const Program p = parse_program(R"(program t {
  input a: f32[24, 3]
  c: f32[3] = [3] sum(i1 < 24) @0 where @0 = a[i1, i0]
  output c
})");
    EXPECT_EQ(print(p, split_axis(expr_of(p, "c"), 1, 8)), "[3] sum(i1 < 3, i2 < 8) @0 where @0 = a[8*i1 + i2, i0]");
    EXPECT_EQ(print(p, split_axis(expr_of(p, "c"), 0, 3)), "[1, 3] -> [i1] sum(i2 < 24) @0 where @0 = a[i2, i1]");
}

TEST(Tidy, simplifies_by_ranges) {
    const Program p = parse_program(R"(program t {
  input a: f32[9]
  input b: f32[9]
  c: f32[4] = [4] select(lt(index(i0), 4), add(@0, @1), @2) where @0 = a[i0] when i0 >= 0 else 1, @1 = a[i0], @2 = b[i0]
  output c
})");
    EXPECT_EQ(print(p, tidy(expr_of(p, "c"))), "[4] add(@0, @0) where @0 = a[i0]");
}

/// Replaces one primitive's expression.
Program with_expr(const Program& p, PrimitiveId id, TensorExpr e) {
    Program out = p;
    out.primitives[id].kind = std::move(e);
    return out;
}

/// Inlines and fuses at random wherever possible, keeping every value so that all outputs stay comparable.
Program fuse_at_random(Program p, uint64_t seed, int& inlinings, int& epilogues) {
    std::mt19937_64 rng(seed);
    const auto producers = p.producers();
    for (int round = 0; round < 2; ++round)
        for (const PrimitiveId id : p.primitives.ids()) {
            const TensorExpr* consumer = p.primitives[id].expr();
            if (consumer == nullptr) continue;
            for (size_t k = 0; k < consumer->accesses.size(); ++k) {
                const ValueId v = consumer->accesses[k].value;
                if (!producers[v] || rng() % 4 == 0) continue;
                const TensorExpr* producer = p.primitives[producers[v]].expr();
                if (producer == nullptr || consumer->accesses.size() > 12) continue;
                std::optional<TensorExpr> r = inline_producer(*consumer, k, *producer, p.values[v]);
                if (r) {
                    ++inlinings;
                } else {
                    r = fuse_epilogue(*producer, *consumer, k, p.values[v]);
                    epilogues += r.has_value();
                }
                if (!r) continue;
                p = with_expr(p, id, std::move(*r));
                consumer = p.primitives[id].expr();
                k = 0;
            }
        }
    return p;
}

Program normalized(Program p) {
    for (Primitive& primitive : p.primitives)
        if (primitive.expr() != nullptr) primitive.kind = normalize_axes(*primitive.expr());
    return p;
}

TEST(Inline, random_programs_compute_the_same) {
    int inlinings = 0, epilogues = 0;
    for (uint64_t seed = 0; seed < 500; ++seed) {
        const Program p = random_program(seed, 10);
        const Program q = fuse_at_random(p, seed, inlinings, epilogues);
        ASSERT_EQ(verify(q), std::vector<std::string>()) << "seed " << seed << "\n" << print(p) << print(q);
        const std::vector<Tensor> inputs = random_inputs(p, seed);
        const auto before = interpret(p, inputs, {.exact = true});
        const auto after = interpret(q, inputs, {.exact = true});
        ASSERT_LT(largest_difference(before, after), 1e-9) << "seed " << seed << "\n" << print(p) << print(q);
    }
    EXPECT_GT(inlinings, 1000);
    EXPECT_GT(epilogues, 50);
}

TEST(NormalizeAxes, random_programs_compute_the_same) {
    int inlinings = 0, epilogues = 0;
    for (uint64_t seed = 0; seed < 500; ++seed) {
        const Program p = random_program(seed, 8);
        const Program q = normalized(fuse_at_random(p, seed, inlinings, epilogues));
        ASSERT_EQ(verify(q), std::vector<std::string>()) << "seed " << seed << "\n" << print(p) << print(q);
        const std::vector<Tensor> inputs = random_inputs(p, seed);
        const auto before = interpret(p, inputs, {.exact = true});
        const auto after = interpret(q, inputs, {.exact = true});
        ASSERT_LT(largest_difference(before, after), 1e-9) << "seed " << seed << "\n" << print(p) << print(q);
    }
}

}  // namespace
}  // namespace tilewright
