// Layouts tuned together with loops: searches of contractions, layouts of values, and the choice among them.

#include "orchestrate/joint/tune_layouts.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "layout/propagate.h"
#include "orchestrate/fuse.h"
#include "orchestrate/joint/decision.h"
#include "orchestrate/joint/layout_choice.h"
#include "orchestrate/joint/layout_options.h"
#include "orchestrate/joint/network_test.h"
#include "orchestrate/optimal/brute_force_test.h"
#include "orchestrate/program_test.h"
#include "orchestrate/scheduling_test.h"
#include "schedule/kernel_costs_test.h"

namespace tilewright::joint {
namespace {

using namespace test;

TEST(SinglePrimitive, has_the_computed_operands_as_inputs) {
    const Program p = network();
    const SinglePrimitive c = single_primitive(p, KernelExtractor(p), producer(p, "c"));
    EXPECT_THAT(c.tensors, testing::ElementsAre(value_of(p, "a"), value_of(p, "x"), value_of(p, "c")));
    EXPECT_EQ(c.program.constants.size(), 1u);
    EXPECT_EQ(verify(c.program), std::vector<std::string>()) << print(c.program);
}

TEST(SearchLayouts, compares_every_point_of_a_small_template) {
    const Single s(network(16, 4), "c");
    Evaluator e;
    SearchOptions all;
    all.most_points = 1 << 20;
    const SearchResult found = search_layouts(s.single, s.rule, e.how, all);
    // Three factors of each dimension of space; 1, 8 and 16 channels of data and of results; the weights' tiles do not
    // count. For tiles of one pixel, results of 1 and of 16 channels are the same layout, for each tile of the data.
    EXPECT_EQ(found.points, 3u * 3 * 3 * 3 - 3);
    EXPECT_EQ(found.constructed, 16u);
    EXPECT_EQ(found.best.size(), 8u);
    for (size_t k = 1; k < found.best.size(); ++k) EXPECT_LE(found.best[k - 1].total(), found.best[k].total());
    EXPECT_EQ(found.measured, 0u);
    // The residual follows the result.
    for (const LayoutCandidate& c : found.best) EXPECT_EQ(print(c.layouts[1]), print(c.layouts[2]));
}

TEST(SearchLayouts, stays_within_its_number_of_points) {
    const Single s(network(64, 12), "c");
    Evaluator e;
    SearchOptions few;
    few.most_points = 20;
    const SearchResult found = search_layouts(s.single, s.rule, e.how, few);
    EXPECT_GT(found.template_size, 1000);
    EXPECT_LE(found.points, 20u);
    EXPECT_GE(found.points, 15u);
}

TEST(SearchLayouts, measures_the_best_and_the_rule) {
    const Single s(network(16, 4), "c");
    size_t runs = 0;
    Evaluator e([&](const TileProgram&, const std::vector<bool>& weights) {
        EXPECT_EQ(std::count(weights.begin(), weights.end(), true), 1);
        return seconds(1e-6 * static_cast<double>(++runs));
    });
    const SearchResult found = search_layouts(s.single, s.rule, e.how, {});
    EXPECT_EQ(runs, 9u) << "the rule's and eight";
    EXPECT_EQ(found.measured, 9u);
    EXPECT_DOUBLE_EQ(found.rule.seconds, 1e-6);
    ASSERT_EQ(found.best.size(), 8u);
    search_layouts(s.single, s.rule, e.how, {});
    EXPECT_EQ(runs, 9u) << "measured once";
}

TEST(SearchLayouts, compares_no_estimates_with_measurements) {
    const Single s(network(16, 4), "c");
    size_t runs = 0;
    Evaluator e([&](const TileProgram&, const std::vector<bool>&) {
        return ++runs > 3 ? std::nullopt : std::optional(seconds(1e-6));  // the time is over
    });
    const SearchResult found = search_layouts(s.single, s.rule, e.how, {});
    EXPECT_FALSE(found.rule.measured);
    for (const LayoutCandidate& c : found.best) EXPECT_FALSE(c.measured);
    EXPECT_FALSE(e.how.measures());
}

/// c, a convolution, is read by relu, and that by a convolution with y.
TEST(LayoutOptions, leave_out_what_an_ablation_does_without) {
    const Program p = network(16, 12);
    const RuleLayouts rule = without_copies(choose_layouts(p, avx2_scheduling().target));
    const ValueId c = value_of(rule.program, "c"), r = value_of(rule.program, "r");
    const auto tiled = [](int64_t tile) { return Layout{{layout::Split{1, tile}, layout::Reorder{{0, 1, 3, 4, 2}}}}; };
    const Layout of_first = tiled(4), of_second = tiled(2);
    const std::vector<Proposal> proposals = {{c, of_first, 1, true}, {r, of_second, 1, false}};
    const auto has = [&](Ablation without, ValueId v, const Layout& layout) {
        const auto all = layout_options(rule, proposals, 8, without)[v];
        return std::find(all.begin(), all.end(), layout) != all.end();
    };
    // The first convolution's layout is propagated; the second one's stops at the result of the first.
    EXPECT_TRUE(has(Ablation::None, c, of_first) && has(Ablation::None, r, of_first));
    EXPECT_TRUE(has(Ablation::None, r, of_second) && !has(Ablation::None, c, of_second));
    EXPECT_TRUE(has(Ablation::WithoutPropagation, c, of_first) && !has(Ablation::WithoutPropagation, r, of_first));
    EXPECT_TRUE(has(Ablation::WithoutPropagation, r, of_second));
    EXPECT_TRUE(has(Ablation::ForwardOnly, c, of_first) && has(Ablation::ForwardOnly, r, of_first));
    EXPECT_FALSE(has(Ablation::ForwardOnly, r, of_second));
    EXPECT_FALSE(has(Ablation::BackwardOnly, c, of_first) || has(Ablation::BackwardOnly, r, of_first));
    EXPECT_TRUE(has(Ablation::BackwardOnly, r, of_second) && has(Ablation::BackwardOnly, c, of_second));
}

TEST(LayoutOptions, without_copies_is_the_program_before) {
    const Program before = with_weights(R"(program convolution {
  input x: f32[1, 16, 14, 14]
  input w: f32[32, 16, 3, 3]
  y: f32[1, 32, 12, 12] = [1, 32, 12, 12] sum(i4 < 16, i5 < 3, i6 < 3) mul(@0, @1) where @0 = x[i0, i4, i2 + i5, i3 + i6], @1 = w[i1, i4, i5, i6]
  output y
})");
    const ChosenLayouts chosen = choose_layouts(before, avx2_scheduling().target);
    ASSERT_EQ(chosen.program.primitives.size(), 3u) << "input and output are copied";
    const RuleLayouts rule = without_copies(chosen);
    EXPECT_EQ(primitives(rule.program), primitives(before));
    // The layout of a copied output is the copy's.
    EXPECT_EQ(print(rule.layouts[value_of(before, "y")]), "reorder(0, 2, 3, 1)");
}

TEST(LayoutOptions, propagate_proposals_and_keep_the_best) {
    const Program p = network();
    const RuleLayouts rule = without_copies(choose_layouts(p, avx2_scheduling().target));
    const Layout blocks = parse_layout("split(1, 8) reorder(0, 1, 3, 4, 2)"), tiles = parse_layout("unfold(2, 6, 4)");
    const auto texts = [](const std::vector<Layout>& layouts) {
        std::vector<std::string> out;
        out.reserve(layouts.size());
        for (const Layout& l : layouts) out.push_back(print(l));
        return out;
    };
    const ValueId a = value_of(p, "a"), c = value_of(p, "c"), r = value_of(p, "r");
    const LayoutOptions options = layout_options(rule, {{c, blocks, 1e-3}, {a, tiles, 1e-4}}, 4);
    EXPECT_THAT(texts(options[c]), testing::ElementsAre("reorder(0, 2, 3, 1)", print(blocks)));
    EXPECT_THAT(texts(options[r]), testing::ElementsAre("reorder(0, 2, 3, 1)", print(blocks))) << "propagated";
    EXPECT_THAT(texts(options[a]), testing::ElementsAre("reorder(0, 2, 3, 1)", print(tiles)));
    EXPECT_THAT(texts(options[value_of(p, "x")]), testing::Contains("")) << "an input is row-major";
    EXPECT_THAT(texts(layout_options(rule, {{c, blocks, 1e-3}, {c, parse_layout("reorder(0, 3, 2, 1)"), 2e-3}}, 2)[c]),
                testing::ElementsAre("reorder(0, 2, 3, 1)", "reorder(0, 3, 2, 1)"));
}

/// Random layouts of the values of a program, besides the heuristic's.
LayoutOptions random_options(const RuleLayouts& rule, std::mt19937_64& rng, size_t most) {
    static const std::vector<const char*> kLayouts = {"reorder(0, 2, 3, 1)", "split(1, 8) reorder(0, 1, 3, 4, 2)",
                                                      "reorder(0, 3, 2, 1)", "pad(2, 1, 1)",
                                                      "unfold(2, 6, 4)",     "split(3, 5) reorder(0, 1, 3, 2, 4)"};
    std::vector<Proposal> proposals;
    for (const PrimitiveId id : rule.program.primitives.ids())
        for (int k = 0; k < 2; ++k)
            proposals.push_back({rule.program.primitives[id].outputs[0],
                                 parse_layout(kLayouts[rng() % kLayouts.size()]), 1e-6 * uniform(rng)});
    return layout_options(rule, proposals, most);
}

TEST(LayoutChoice, every_plan_computes_the_program) {
    const Program p = fuse_greedily(network());
    const RuleLayouts rule = without_copies(choose_layouts(p, avx2_scheduling().target));
    const std::vector<Tensor> inputs = random_inputs(p, 1), expected = interpret(p, inputs);
    size_t converted = 0;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
        std::mt19937_64 rng(seed);
        Evaluator e;
        const LayoutOptions options = random_options(rule, rng, 4);
        const LayoutChoice choice(rule, options, e.how, 16);
        EXPECT_EQ(choice.choice().verify(), std::vector<std::string>());
        // Random costs select random layouts.
        optimal::Choice costs = choice.choice();
        for (optimal::Candidate& c : costs.candidates) c.cost = uniform(rng) * (c.covers.empty() ? 0.1 : 1);
        const optimal::BlpResult best = optimal::solve(costs);
        ASSERT_EQ(best.status, optimal::BlpStatus::Optimal);
        EXPECT_LE(best.objective, costs.cost(choice.rule()) + 1e-9);
        const ChosenLayouts chosen = choice.apply(best.chosen);
        converted += chosen.program.primitives.size() - p.primitives.size();
        EXPECT_EQ(verify(chosen.program), std::vector<std::string>()) << print(chosen.program);
        const Program placed = lay_out(chosen.program, chosen.values, avx2_scheduling().target);
        EXPECT_EQ(verify(placed), std::vector<std::string>()) << print(placed);
        EXPECT_LE(largest_difference(expected, interpret(placed, inputs)), 1e-4) << seed << "\n" << print(placed);
    }
    EXPECT_GT(converted, 4u);
}

TEST(LayoutChoice, is_the_cheapest_of_all_plans) {
    const Program p = fuse_greedily(network());
    const RuleLayouts rule = without_copies(choose_layouts(p, avx2_scheduling().target));
    for (uint64_t seed = 1; seed <= 4; ++seed) {
        std::mt19937_64 rng(seed);
        Evaluator e;
        const LayoutOptions two = random_options(rule, rng, 2), four = random_options(rule, rng, 4);
        for (const LayoutOptions* options : {&two, &four}) {
            const LayoutChoice choice(rule, *options, e.how, 64);
            EXPECT_NEAR(optimal::solve(choice.choice()).objective, optimal::test::cheapest(choice.choice()), 1e-12);
        }
    }
}

TEST(TuneLayouts, never_cost_more_than_the_rule) {
    for (const int channels : {8, 16, 64}) {
        const Program p = fuse_greedily(network(channels, 14));
        Schedules schedules(avx2_scheduling(SchedulerKind::Auto));
        Report report;
        const ChosenLayouts chosen = tune_layouts(choose_layouts(p, avx2_scheduling().target), schedules, {}, report);
        EXPECT_LE(report.seconds, report.rule_seconds);
        ASSERT_EQ(report.contractions.size(), 2u);
        expect_same(p, lay_out(chosen.program, chosen.values, avx2_scheduling().target));
    }
}

/// Blocks of eight channels are twice as fast.
MeasuredKernel of_blocks(const TileProgram& kernel) {
    double s = 1e-4;
    for (const Value& v : kernel.stages.values)
        if (v.shape.size() == 5 && v.shape.back().is_constant(8)) s /= 2;
    return seconds(s);
}

/// Many layouts are measured, so that blocks are among them.
Options measuring() {
    Options options;
    options.measure = true;
    options.measure_seconds = 1000;  // also under sanitizers
    options.search.most_points = 200;
    options.search.measured = options.search.constructed = 60;
    return options;
}

TEST(TuneLayouts, measurements_decide) {
    const Program p = fuse_greedily(network(32, 14));
    Scheduling how = avx2_scheduling(SchedulerKind::Auto);
    measure_kernels_by(how, [](const TileProgram& kernel, const std::vector<bool>&) { return of_blocks(kernel); });
    Schedules schedules(how);
    Report report;
    const ChosenLayouts chosen = tune_layouts(choose_layouts(p, how.target), schedules, measuring(), report);
    EXPECT_LT(report.seconds, report.rule_seconds);
    EXPECT_TRUE(report.optimal);
    EXPECT_THAT(report.print(), testing::HasSubstr("values in other layouts"));
    const Program placed = lay_out(chosen.program, chosen.values, how.target);
    EXPECT_THAT(print(placed), testing::HasSubstr(", 8]"));
    expect_same(p, placed);
}

TEST(TuneLayouts, decisions_are_repeated_without_measurements) {
    const Program p = fuse_greedily(network(32, 14));
    Scheduling how = avx2_scheduling(SchedulerKind::Auto);
    measure_kernels_by(how, [](const TileProgram& kernel, const std::vector<bool>&) { return of_blocks(kernel); });
    Options options = measuring();
    options.record = std::make_shared<std::vector<Decision>>();
    const ChosenLayouts rule = choose_layouts(p, how.target);
    Report report;
    Schedules measured(how);
    const ChosenLayouts chosen = tune_layouts(rule, measured, options, report);
    ASSERT_EQ(options.record->size(), 1u);
    ASSERT_FALSE((*options.record)[0].chosen.empty());

    const auto text = print(*options.record);
    const auto repeated = [&](const std::string& decisions) {
        Options again;
        again.decided = std::make_shared<const std::vector<Decision>>(parse_decisions(decisions).value());
        Schedules schedules(avx2_scheduling(SchedulerKind::Auto));
        Report none;
        ChosenLayouts out = tune_layouts(rule, schedules, again, none);
        EXPECT_EQ(none.measured, 0u);
        return out;
    };
    EXPECT_EQ(print(repeated(text).program), print(chosen.program));
    EXPECT_EQ(repeated(text).values, chosen.values);
    // Those of another program, or none.
    for (const std::string& other :
         {std::string("4000 0x1p-9 1 reorder(1, 0); 0\n"), text.substr(0, text.size() - 1) + " 9999\n",
          text.substr(0, text.find(';')) + "; 0\n", std::string(";\n"), std::string()})
        EXPECT_EQ(print(repeated(other).program), print(rule.program)) << other;
}

TEST(Decision, has_a_text) {
    const std::string text = "12 0x1.8p-14 1 split(1, 16) reorder(0, 1, 3, 2)|9 0x1p-15 0 reorder(1, 0); 0 4 7\n;\n";
    const auto decisions = parse_decisions(text);
    ASSERT_TRUE(decisions);
    ASSERT_EQ(decisions->size(), 2u);
    EXPECT_EQ((*decisions)[0].proposals[0].value, ValueId(12));
    EXPECT_EQ((*decisions)[0].proposals[1].gain, 0x1p-15);
    EXPECT_EQ((*decisions)[0].chosen, (std::vector<size_t>{0, 4, 7}));
    EXPECT_EQ(print(*decisions), text);
    for (const char* damaged :
         {"12", "12 x 1 reorder(1, 0); 1\n", "12 0x1p-3 1 nothing(1); 1\n", "1 0x1p-3 1 ; a\n", "; 0 -\n"})
        EXPECT_FALSE(parse_decisions(damaged)) << damaged;
}

TEST(TuneLayouts, the_rule_stays_where_the_time_ends_before_the_choice) {
    const Program p = fuse_greedily(network(32, 14));
    Scheduling how = avx2_scheduling(SchedulerKind::Auto);
    size_t runs = 0;
    measure_kernels_by(how, [&](const TileProgram& kernel, const std::vector<bool>&) {
        return ++runs > 2 * 61 ? std::nullopt : std::optional(of_blocks(kernel));  // both searches
    });
    Schedules schedules(how);
    Report report;
    const ChosenLayouts rule = choose_layouts(p, how.target);
    const ChosenLayouts chosen = tune_layouts(rule, schedules, measuring(), report);
    EXPECT_EQ(print(chosen.program), print(rule.program));
    EXPECT_EQ(chosen.values, rule.values);
    EXPECT_THAT(report.print(), testing::HasSubstr("the time ended"));
}

}  // namespace
}  // namespace tilewright::joint
