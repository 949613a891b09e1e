// Rewrites that replace primitives of several pieces.

#include "program/rewrite/borders.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "program/program.h"
#include "program/rewrite/pieces.h"
#include "program/rewrite/rewrite_test.h"
#include "program/rewrite/search.h"

namespace tilewright {
namespace {

using Runs = std::vector<Run>;

/// Channels are mixed behind an upsampling of rows, with other work in between; a cheaper program mixes first.
constexpr const char* kUpsampled = R"(program upsampled {
  input x: f32[64, 16]
  input w: f32[64, 64]
  input y: f32[64, 16]
  x1: f32[64, 16] = [64, 16] exp(@0) where @0 = x[i0, i1]
  up: f32[64, 64] = [64, 64] mul(@0, 2.0) where @0 = x1[i0, i1 // 4]
  y1: f32[64, 16] = [64, 16] exp(@0) where @0 = y[i0, i1]
  y2: f32[64, 16] = [64, 16] exp(@0) where @0 = y1[i0, i1]
  mix: f32[64, 64] = [64, 64] sum(i2 < 64) mul(@0, @1) where @0 = up[i2, i1], @1 = w[i0, i2]
  out: f32[64, 64] = [64, 64] exp(@0) where @0 = mix[i0, i1]
  output out
  output y2
})";

/// Products that one result of the program's sums needs, for all of them.
int64_t products(const Program& p) {
    int64_t n = 0;
    for (const Primitive& primitive : p.primitives)
        if (primitive.expr()->reducer == Reducer::Sum) n += product(primitive.expr()->extents).constant();
    return n;
}

/// Pieces of the first `border` primitives and of the rest.
std::vector<size_t> two_pieces(const Program& p, size_t border) {
    std::vector<size_t> of(p.values.size(), kNoPiece);
    for (const PrimitiveId id : p.primitives.ids())
        of[p.primitives[id].outputs[0].index()] = id.index() < border ? 0 : 1;
    return of;
}

TEST(Borders, a_run_holds_the_primitives_that_a_match_replaces) {
    const Program p = parse_sound(kUpsampled);
    const RewriteSearch narrow{.piece = 2};  // upsampling 1 to product 4: four primitives, twice a piece
    EXPECT_EQ(runs_across_pieces(p, two_pieces(p, 3), narrow), (Runs{{1, 5}}));
    const RewriteSearch wide{.piece = 6};
    EXPECT_EQ(runs_across_pieces(p, two_pieces(p, 3), wide), (Runs{{0, 6}}));
}

TEST(Borders, a_match_in_one_piece_needs_no_second_search) {
    const Program p = parse_sound(kUpsampled);
    EXPECT_TRUE(runs_across_pieces(p, two_pieces(p, 1), {.piece = 6}).empty());
    EXPECT_TRUE(runs_across_pieces(p, two_pieces(p, 5), {.piece = 6}).empty());
}

TEST(Borders, longer_spans_than_the_limit_are_left) {
    const Program p = parse_sound(kUpsampled);
    EXPECT_TRUE(runs_across_pieces(p, two_pieces(p, 3), {.piece = 1}).empty());
    EXPECT_TRUE(runs_across_pieces(p, two_pieces(p, 3), {.piece = 6, .across = 0}).empty());
}

TEST(Borders, a_match_that_does_not_pay_off_is_left) {
    const Program p = parse_sound(kUpsampled);
    RewriteSearch costs{.piece = 6};
    costs.cost = [](const RewriteContext& c) { return static_cast<double>(c.program().primitives.size()); };
    EXPECT_TRUE(runs_across_pieces(p, two_pieces(p, 3), costs).empty());
}

TEST(Borders, the_second_search_rewrites_across_pieces) {
    const Program p = parse_sound(kUpsampled);
    RewriteReport once, twice;
    const Program cut = rewrite(p, {.piece = 3, .across = 0}, &once);
    EXPECT_EQ(products(cut), 64 * 64 * 64);
    const Program whole = rewrite(p, {.piece = 3}, &twice);
    EXPECT_EQ(products(whole), 64 * 64 * 16) << print(whole);
    EXPECT_EQ(verify(whole), std::vector<std::string>());
    EXPECT_EQ(twice.applied["product_of_linear_map"], 1u);
    EXPECT_EQ(twice.pieces, once.pieces + 1);
    EXPECT_LT(twice.after, once.after);
    EXPECT_EQ(twice.before, once.before);
    const std::vector<Tensor> inputs = random_inputs(p, 1);
    EXPECT_LT(largest_difference(interpret(p, inputs, {.exact = true}), interpret(whole, inputs, {.exact = true})),
              1e-9);
}

TEST(Borders, the_plan_of_the_first_search_is_not_evaluated_again) {
    const Program p = parse_sound(kUpsampled);
    RewriteSearch options{.piece = 3};
    options.evaluator = [](const Program& q) {
        PlannedCost cost;
        for (const Primitive& primitive : q.primitives) {
            cost.of.push_back(static_cast<double>(product(primitive.expr()->extents).constant()));
            cost.total += cost.of[PrimitiveId(cost.of.size() - 1)];
        }
        return cost;
    };
    RewriteReport report;
    EXPECT_EQ(products(rewrite(p, options, &report)), 64 * 64 * 16);
    EXPECT_EQ(report.planned, 2u);  // the program, and that with the rewrite
    EXPECT_LT(report.planned_after, report.planned_before);
}

}  // namespace
}  // namespace tilewright
