// The search: its results, determinism, and preserved semantics.

#include "program/rewrite/search.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "program/rewrite/pieces.h"
#include "program/rewrite/rewrite_test.h"
#include "program/transform/fold.h"

namespace tilewright {
namespace {

void expect_same(const Program& p, const Program& q, double rounding = 1e-9) {
    ASSERT_EQ(verify(q), std::vector<std::string>()) << print(p) << "became\n" << print(q);
    const std::vector<Tensor> inputs = random_inputs(p, 1);
    EXPECT_LT(largest_difference(interpret(p, inputs, {.exact = true}), interpret(q, inputs, {.exact = true})),
              rounding)
        << print(p) << "became\n"
        << print(q);
}

/// EfficientViT's attention over n positions, each half of it with layouts as exported: q k^T first, and the result
/// divided by its row sums.
std::string linear_attention(int n) {
    return fmt::format(R"(program linear_attention {{
  input q: f32[2, {0}, 16]
  input k: f32[2, {0}, 16]
  input v: f32[2, {0}, 16]
  fq: f32[2, {0}, 16] = [2, {0}, 16] max(@0, 0.0) where @0 = q[i0, i1, i2]
  fk: f32[2, {0}, 16] = [2, {0}, 16] max(@0, 0.0) where @0 = k[i0, i1, i2]
  kt: f32[2, 16, {0}] = [2, 16, {0}] @0 where @0 = fk[i0, i2, i1]
  s: f32[2, {0}, {0}] = [2, {0}, {0}] sum(i3 < 16) mul(@0, @1) where @0 = fq[i0, i1, i3], @1 = kt[i0, i3, i2]
  r: f32[2, {0}, 1] = [2, {0}, 1] sum(i3 < {0}) @0 where @0 = s[i0, i1, i3]
  p: f32[2, {0}, {0}] = [2, {0}, {0}] div(@0, @1) where @0 = s[i0, i1, i2], @1 = r[i0, i1, 0]
  o: f32[2, {0}, 16] = [2, {0}, 16] sum(i3 < {0}) mul(@0, @1) where @0 = p[i0, i1, i3], @1 = v[i0, i3, i2]
  output o
}})",
                       n);
}

bool has_value_of(const Program& p, int64_t elements) {
    for (const Primitive& primitive : p.primitives)
        if (product(p.values[primitive.outputs[0]].shape).is_constant(elements)) return true;
    return false;
}

TEST(Search, linear_attention_avoids_the_square_matrix) {
    const Program p = parse_sound(linear_attention(96));
    RewriteReport report;
    const Program q = search(p, {}, &report);
    expect_same(p, q);
    EXPECT_FALSE(has_value_of(q, int64_t{2} * 96 * 96)) << print(q);
    EXPECT_LT(report.after, report.before / 2);
    EXPECT_GE(report.applied["reassociate"], 1u);
    EXPECT_GE(report.applied["factor_across_sum"], 1u);
}

TEST(Search, keeps_the_square_matrix_if_it_is_smaller) {
    const Program p = parse_sound(linear_attention(4));
    RewriteReport report;
    expect_same(p, search(p, {}, &report));
    EXPECT_EQ(report.applied.count("reassociate"), 0u);
}

TEST(Search, is_deterministic) {
    const Program p = parse_sound(linear_attention(96));
    const std::string first = print(search(p));
    EXPECT_EQ(first, print(search(p)));
    EXPECT_EQ(structure_hash(search(p)), structure_hash(parse_sound(first)));
}

TEST(Search, a_zero_budget_changes_nothing) {
    const Program p = parse_sound(linear_attention(96));
    EXPECT_EQ(print(search(p, {.budget = 0})), print(p));
}

TEST(Search, the_cost_function_is_replaceable) {
    // A cost that rewards many primitives yields up to twice as many.
    RewriteSearch options;
    options.cost = [](const RewriteContext& c) { return 100.0 - static_cast<double>(c.program().primitives.size()); };
    const Program p = parse_sound(linear_attention(8));
    const Program q = search(p, options);
    EXPECT_GT(q.primitives.size(), p.primitives.size());
    EXPECT_LE(q.primitives.size(), p.primitives.size() * 2);
    expect_same(p, q);
}

TEST(Search, terms_that_share_an_operand_become_one_product) {
    const Program p = parse_sound(R"(program terms {
  input x: f32[64, 64]
  input a: f32[64, 64]
  input b: f32[64, 64]
  l: f32[64, 64] = [64, 64] sum(i2 < 64) mul(@0, @1) where @0 = x[i0, i2], @1 = a[i2, i1]
  r: f32[64, 64] = [64, 64] sum(i2 < 64) mul(@0, @1) where @0 = x[i0, i2], @1 = b[i2, i1]
  o: f32[64, 64] = [64, 64] add(@0, @1) where @0 = l[i0, i1], @1 = r[i0, i1]
  output o
})");
    const Program q = search(p);
    EXPECT_EQ(q.primitives.size(), 2u) << print(q);
    expect_same(p, q);
}

TEST(Search, alpha_allows_intermediate_cost_increases) {
    // A sum as a product with ones costs 2 % here; merged with the adjacent product, half is saved (Korch, figure 2).
    const Program p = parse_sound(R"(program sums {
  input e: f32[8, 8]
  input v: f32[8, 8]
  r: f32[8, 1] = [8, 1] sum(i2 < 8) @0 where @0 = e[i0, i2]
  o: f32[8, 8] = [8, 8] sum(i2 < 8) mul(@0, @1) where @0 = e[i0, i2], @1 = v[i2, i1]
  output r, o
})");
    RewriteSearch options;
    options.growth = 4;
    options.cost = [](const RewriteContext& c) {
        size_t products = 0, sums = 0;
        for (const Primitive& primitive : c.program().primitives) {
            products += category(c.program(), primitive) == Category::Linear ? 1 : 0;
            sums += category(c.program(), primitive) == Category::Reduce ? 1 : 0;
        }
        return 50.0 * static_cast<double>(products) + 49.0 * static_cast<double>(sums);
    };
    RewriteReport with, without;
    const Program q = search(p, options, &with);
    expect_same(p, q);
    EXPECT_EQ(with.after, 50) << print(q);
    EXPECT_EQ(with.applied["merge_products"], 1u);
    options.alpha = 1;
    search(p, options, &without);
    EXPECT_EQ(without.after, 99);
}

/// Layers that differ only in names and weights.
Program layers(int n) {
    PatternWriter w(9);
    ValueId x = w.input({32, 48});
    for (int k = 0; k < n; ++k) {
        w.b.set_source(fmt::format("layer{}", k), "");
        const ValueId a = w.weights({48, 48}), b = w.weights({48, 48}), bias = w.weights({48}), gain = w.weights({48});
        const ValueId scaled = w.mul(w.tanh(x), gain);
        x = w.add(x, w.b.binary(ScalarOp::Mul, w.add(w.b.matmul(w.tanh(w.b.matmul(scaled, a)), b), bias), 0.01));
    }
    w.outputs = {x};
    return w.take();
}

TEST(Rewrite, equal_pieces_are_searched_once) {
    const Program p = layers(12);
    RewriteSearch options;
    options.piece = 8;
    RewriteReport report;
    const Program q = rewrite(p, options, &report);
    expect_same(p, q, 1e-6);  // folded weights are rounded to f32
    EXPECT_GE(report.pieces, 12u);
    EXPECT_LE(report.distinct, 4u);
    EXPECT_LT(report.after, report.before);
    expect_same(p, fold_constants(q), 1e-5);
}

TEST(Rewrite, equal_pieces_keep_their_own_nodes) {
    constexpr uint32_t kLayers = 12, kPrimitives = 8;
    Program p = layers(kLayers);
    ASSERT_EQ(p.primitives.size(), kLayers * kPrimitives);
    for (uint32_t k = 0; k < kLayers; ++k) p.nodes.push_back({fmt::format("layer{}", k), "Op"});
    for (const PrimitiveId id : p.primitives.ids()) p.primitives[id].origin.nodes = {id.value / kPrimitives};
    RewriteSearch options;
    options.piece = kPrimitives;
    RewriteReport report;
    const Program q = rewrite(p, options, &report);
    ASSERT_LT(report.distinct, report.pieces);
    ASSERT_LT(report.after, report.before);
    std::map<uint32_t, size_t> primitives;
    for (const Primitive& each : q.primitives) {
        ASSERT_EQ(each.origin.nodes.size(), 1U) << each.name;
        ++primitives[each.origin.nodes[0]];
    }
    EXPECT_EQ(primitives.size(), kLayers) << "each layer is there";
}

TEST(Rewrite, random_programs_compute_the_same) {
    RewriteSearch options;
    options.budget = 4;
    options.piece = 10;
    size_t rewritten = 0;
    for (uint64_t seed = 0; seed < 60 && !HasFailure(); ++seed) {
        const Program p = random_program(seed, 14);
        RewriteReport report;
        const Program q = rewrite(p, options, &report);
        expect_same(p, q);
        EXPECT_LE(report.after, report.before);
        rewritten += report.applied.empty() ? 0 : 1;
    }
    EXPECT_GT(rewritten, 30u);
}

TEST(Pieces, are_cut_where_few_values_are_live) {
    const Program p = layers(6);  // eight primitives a layer, two values alive inside, one between layers
    const auto runs = cut(p, 11);
    size_t next = 0;
    for (const auto& [begin, end] : runs) {
        EXPECT_EQ(begin, next);
        EXPECT_LE(end - begin, 11u);
        next = end;
    }
    EXPECT_EQ(next, p.primitives.size());
    EXPECT_EQ(runs.size(), 6u);
}

TEST(Pieces, put_back_unchanged_are_the_program) {
    const Program p = layers(3);
    const std::vector<Piece> all = pieces(p, cut(p, 5));
    std::vector<Replacement> unchanged;
    for (const Piece& part : all) {
        EXPECT_EQ(verify(part.program), std::vector<std::string>());
        unchanged.push_back({&part, &part.program});
        EXPECT_EQ(print(put_back(p, {unchanged.back()})), print(p));
    }
    EXPECT_EQ(print(put_back(p, unchanged)), print(p));
}

TEST(Structure, is_independent_of_names_and_order) {
    const Program a = parse_sound(R"(program a {
  input x: f32[4]
  l: f32[4] = [4] exp(@0) where @0 = x[i0]
  r: f32[4] = [4] neg(@0) where @0 = x[i0]
  o: f32[4] = [4] add(@0, @1) where @0 = l[i0], @1 = r[i0]
  output o
})");
    const Program b = parse_sound(R"(program b {
  input in: f32[4]
  p: f32[4] = [4] neg(@0) where @0 = in[i0]
  q: f32[4] = [4] exp(@0) where @0 = in[i0]
  s: f32[4] = [4] add(@0, @1) where @0 = q[i0], @1 = p[i0]
  output s
})");
    Program c = b;
    c.outputs[0] = c.primitives[PrimitiveId(size_t{0})].outputs[0];
    EXPECT_EQ(structure_hash(a), structure_hash(b));
    EXPECT_NE(structure_hash(a), structure_hash(c));
}

}  // namespace
}  // namespace tilewright
