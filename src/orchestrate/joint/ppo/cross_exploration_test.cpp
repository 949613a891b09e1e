// ALT's own search: its budgets, what it adopts, and what happens when the time is over.

#include "orchestrate/joint/ppo/cross_exploration.h"

#include <gtest/gtest.h>

#include <random>

#include "orchestrate/joint/network_test.h"
#include "orchestrate/joint/ppo/loop_space.h"
#include "tune/boosted_trees.h"

namespace tilewright::joint::ppo {
namespace {

using namespace joint::test;

/// A few measurements of small batches.
PpoOptions small(size_t joint, size_t loops) {
    PpoOptions o;
    o.joint = joint;
    o.loops = loops;
    o.batch = 6;
    o.measured = 2;
    return o;
}

struct Space {
    Single single{network(16, 12), "c"};
    Evaluator e;
    LoopSpace space =
        *LoopSpace::of(*kernel_in_layouts(single.single, single.rule, e.how.target()), e.how.scheduling());
};

TEST(LoopSpace, MovesToTheNextTileAndBack) {
    Space s;
    std::mt19937_64 rng(1);
    size_t moved = 0;
    for (int k = 0; k < 20; ++k) {
        const construct::Etir from = s.space.random(rng);
        for (const LoopParameter& p : s.space.parameters()) {
            construct::Etir e = from;
            EXPECT_FALSE(s.space.move(e, p, 0));
            if (!s.space.move(e, p, 1)) {
                EXPECT_EQ(e, from) << "unchanged where there is no such tile";
                continue;
            }
            ++moved;
            EXPECT_GT(e.tiles[p.level][p.axis], from.tiles[p.level][p.axis]);
            EXPECT_TRUE(s.space.move(e, p, -1));
            EXPECT_EQ(e.tiles, from.tiles);
        }
    }
    EXPECT_GT(moved, 20u);
}

TEST(LoopSpace, ShowsTilesByTheirLogarithms) {
    Space s;
    std::mt19937_64 rng(2);
    for (int k = 0; k < 20; ++k) {
        const construct::Etir e = s.space.random(rng);
        const std::vector<double> totals = s.space.totals(e);
        ASSERT_EQ(totals.size(), LoopSpace::kTotalSize);
        for (const double x : totals) {
            EXPECT_GE(x, 0);
            EXPECT_LE(x, 1.2) << "tiles are rounded up";
        }
        for (const LoopParameter& p : s.space.parameters()) EXPECT_EQ(s.space.view(e, p).size(), LoopSpace::kViewSize);
    }
}

TEST(CrossExploration, StaysWithinItsBudgetAndAdoptsTheFastestSchedules) {
    if (!has_boosted_trees()) GTEST_SKIP() << "XGBoost is not installed";
    const Single s(network(16, 12), "c");
    size_t runs = 0;
    Evaluator e([&](const TileProgram& kernel, const std::vector<bool>&) {
        const double time = estimated_costs(avx2_scheduling()).estimate(kernel) * (runs % 3 == 0 ? 1.1 : 0.9);
        ++runs;
        return seconds(std::max(time, 1e-9));
    });
    const SearchResult found = search_layouts(s.single, s.rule, e.how, small(24, 16), 1);
    EXPECT_LE(found.measured, 40u);
    EXPECT_GE(found.measured, 24u);
    EXPECT_LE(runs, 41u) << "and the rule's";
    EXPECT_GT(found.points, 2u) << "different layouts";
    ASSERT_FALSE(found.best.empty());
    for (size_t k = 1; k < found.best.size(); ++k) EXPECT_LE(found.best[k - 1].total(), found.best[k].total());
    const LayoutCandidate& best = found.best[0];
    EXPECT_TRUE(best.measured);
    const size_t before = runs;
    EXPECT_EQ(e.how.measured({{&s.single, best.layouts}})->front(), best.seconds) << "of the schedule that was adopted";
    EXPECT_EQ(runs, before) << "which is not measured again";
}

TEST(CrossExploration, FindsTheSameAgain) {
    if (!has_boosted_trees()) GTEST_SKIP() << "XGBoost is not installed";
    std::vector<std::string> texts;
    for (int k = 0; k < 2; ++k) {
        const Single s(network(16, 12), "c");
        Evaluator e;  // by estimates
        const SearchResult found = search_layouts(s.single, s.rule, e.how, small(20, 8), 1);
        EXPECT_EQ(found.measured, 0u);
        std::string text;
        for (const LayoutCandidate& c : found.best) text += text_of(c.layouts) + std::to_string(c.seconds) + "\n";
        texts.push_back(text);
    }
    EXPECT_EQ(texts[0], texts[1]);
    EXPECT_FALSE(texts[0].empty());
}

/// ALT-OL.
TEST(CrossExploration, WithoutAJointStageSearchesLoopsInTheLayoutsOfTheRule) {
    if (!has_boosted_trees()) GTEST_SKIP() << "XGBoost is not installed";
    const Single s(network(16, 12), "c");
    Evaluator e;
    const double before = e.how.constructed({&s.single, s.rule});
    const SearchResult found = search_layouts(s.single, s.rule, e.how, small(0, 60), 1);
    EXPECT_EQ(found.points, 1u);
    EXPECT_TRUE(found.best.empty());
    EXPECT_LE(found.rule.seconds, before);
    EXPECT_EQ(found.rule.seconds, e.how.constructed({&s.single, s.rule})) << "the schedule is adopted";
}

TEST(CrossExploration, EndsWithTheTime) {
    const Single s(network(16, 12), "c");
    size_t runs = 0;
    Evaluator e([&](const TileProgram&, const std::vector<bool>&) {
        return ++runs > 5 ? std::nullopt : std::optional(seconds(1e-6));
    });
    const SearchResult found = search_layouts(s.single, s.rule, e.how, small(200, 100), 1);
    EXPECT_LE(found.measured, 4u);
    EXPECT_LE(runs, 7u);
}

}  // namespace
}  // namespace tilewright::joint::ppo
