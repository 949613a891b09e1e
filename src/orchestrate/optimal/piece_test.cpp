// A piece of a graph, from costs to kernels.

#include "orchestrate/optimal/piece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "orchestrate/optimal/brute_force_test.h"

namespace tilewright::optimal {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A launch, each node its own, each tensor its weight; some sets of several nodes are no kernels.
struct Costs {
    const Dag& dag;
    uint64_t seed;
    int asked = 0;

    KernelAnswer operator()(const NodeSet& set, const std::vector<TensorId>& outputs) {
        ++asked;
        std::mt19937_64 rng(seed ^ set.hash());
        if (set.size() > 1 && rng() % 5 == 0) return {kInfinity, kInfinity, rng() % 2 == 0 ? "no rows" : "too large"};
        for (const TensorId t : outputs) rng.discard(t.index());
        KernelAnswer answer;
        answer.seconds = test::kernel_cost(dag, {dag.inputs(set), outputs, set.nodes(), 0}, rng);
        answer.at_least = answer.seconds * (0.3 + 0.6 * uniform(rng));
        return answer;
    }
};

double cheapest_of_all(const Dag& dag, Costs costs) {
    Choice choice = choice_of(dag);
    for (const NodeSet& set : convex_sets(dag, Paths(dag), {}).sets) {
        bool first = true;
        for (std::vector<TensorId>& outputs : output_sets(dag, set, 4)) {
            const KernelAnswer answer = costs(set, outputs);
            if (std::isinf(answer.seconds) && first) break;
            first = false;
            if (std::isinf(answer.seconds)) continue;
            choice.candidates.push_back({dag.inputs(set), std::move(outputs), set.nodes(), answer.seconds});
        }
    }
    return test::cheapest(choice);
}

TEST(PlanPiece, finds_the_cheapest_plan_of_all_candidates) {
    size_t dropped = 0;
    for (uint64_t seed = 0; seed < 80; ++seed) {
        const Dag dag = test::random_dag(seed, 2 + seed % 7, 0.1);
        Costs costs{dag, seed};
        const PiecePlan plan = plan_piece(dag, {}, std::ref(costs), {});
        const BlpResult& blp = plan.solution.blp;
        ASSERT_EQ(blp.status, BlpStatus::Optimal);
        EXPECT_NEAR(blp.objective, cheapest_of_all(dag, {dag, seed}), 1e-6 * blp.objective) << "seed " << seed;
        EXPECT_EQ(plan.kernels.size(), blp.chosen.size());
        EXPECT_LE(plan.dropped, plan.candidates);
        dropped += plan.dropped;
    }
    EXPECT_GT(dropped, 50u);
}

TEST(PlanPiece, measured_lazily_is_the_cheapest_by_measurement) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
        const Dag dag = test::random_dag(seed, 2 + seed % 6, 0.1);
        Costs costs{dag, seed};
        PieceOptions options;
        options.profile = Profile::Lazy;
        size_t measured = 0;
        options.measure = [&](const std::vector<Candidate>& candidates) {
            std::vector<double> out;
            for (const Candidate& c : candidates) out.push_back(costs(dag.set(c.covers), c.outputs).seconds);
            measured += candidates.size();
            return out;
        };
        const PiecePlan plan = plan_piece(dag, {}, std::ref(costs), options);
        EXPECT_NEAR(plan.solution.blp.objective, cheapest_of_all(dag, {dag, seed}), 1e-6 * plan.solution.blp.objective);
        EXPECT_EQ(plan.solution.measured, measured);
    }
}

/// A kernel larger than the bound on sets is a candidate where a plan to begin with has it.
TEST(PlanPiece, kernels_to_begin_with_are_candidates) {
    const Dag dag = dag_of_edges(5, {{0, 1}, {1, 2}, {2, 3}, {3, 4}});
    const AskKernel ask = [&](const NodeSet& set, const std::vector<TensorId>&) {
        return KernelAnswer{set.size() == 5 ? 1.0 : static_cast<double>(set.size()), 0, ""};
    };
    PieceOptions options;
    options.convex.most_nodes = 2;
    EXPECT_EQ(plan_piece(dag, {}, ask, options).solution.blp.objective, 5);
    const Candidate all{{}, {dag.result(NodeId(4))}, dag.all().nodes(), 0};
    const PiecePlan plan = plan_piece(dag, {all}, ask, options);
    EXPECT_TRUE(plan.started);
    EXPECT_EQ(plan.start_seconds, 1);
    EXPECT_EQ(plan.solution.blp.objective, 1);
}

TEST(PlanPiece, kernels_to_begin_with_that_cannot_be_made_are_left_out) {
    const Dag dag = dag_of_edges(3, {{0, 1}, {1, 2}});
    const AskKernel ask = [&](const NodeSet& set, const std::vector<TensorId>&) {
        return set.size() > 1 ? KernelAnswer{kInfinity, kInfinity, "too large"} : KernelAnswer{1, 1, ""};
    };
    const Candidate all{{}, {dag.result(NodeId(2))}, dag.all().nodes(), 0};
    PieceOptions options;
    options.convex.most_nodes = 2;
    const PiecePlan plan = plan_piece(dag, {all}, ask, options);
    EXPECT_FALSE(plan.started);
    EXPECT_EQ(plan.solution.blp.objective, 3);
    EXPECT_THAT(plan.refused, ElementsAre(Pair("too large", 3)));
}

TEST(PlanPiece, of_sixty_primitives_in_branches_is_solved) {
    const Dag dag = test::random_dag(2, 60);
    Costs costs{dag, 2};
    PieceOptions options;
    options.convex.most_nodes = 5;
    options.convex.most_sets = 1000;
    options.most_output_sets = 2;
    const PiecePlan plan = plan_piece(dag, {}, std::ref(costs), options);
    EXPECT_EQ(plan.solution.blp.status, BlpStatus::Optimal);
    EXPECT_LE(plan.sets, 1000u);
}

}  // namespace
}  // namespace tilewright::optimal
