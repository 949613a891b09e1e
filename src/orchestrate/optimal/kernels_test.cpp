// Plans of candidates without a solver: execution, cheap plans, idle candidates.

#include "orchestrate/optimal/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orchestrate/optimal/brute_force_test.h"

namespace tilewright::optimal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Candidate candidate(std::initializer_list<size_t> inputs, std::initializer_list<size_t> outputs, double cost) {
    Candidate c;
    for (const size_t t : inputs) c.inputs.emplace_back(t);
    for (const size_t t : outputs) c.outputs.emplace_back(t);
    c.cost = cost;
    return c;
}

Choice choice(size_t tensors, std::initializer_list<size_t> needed, std::vector<Candidate> candidates) {
    Choice c;
    c.tensors = tensors;
    c.given = {TensorId(0)};
    for (const size_t t : needed) c.needed.emplace_back(t);
    c.candidates = std::move(candidates);
    return c;
}

TEST(Choice, verify_names_what_is_wrong) {
    Choice c = choice(3, {2}, {candidate({0, 0}, {1}, 1), candidate({1}, {}, -1), candidate({1}, {7}, 1)});
    c.candidates[2].covers = {NodeId(0)};
    EXPECT_THAT(c.verify(),
                ElementsAre("candidate 0 names tensor 0 twice", "candidate 1 costs -1", "candidate 1 has no output",
                            "candidate 2 names tensor 7 of 3", "candidate 2 covers node 0 of 0"));
}

TEST(Choice, of_a_graph_leaves_out_what_nothing_needs) {
    //   x -> p1 -> p2 (needed), p1 -> p3 (no reader)
    Dag dag;
    const NodeId p1 = dag.add_node("p1", {dag.add_given("x")});
    const NodeId p2 = dag.add_node("p2", {dag.result(p1)});
    dag.add_node("p3", {dag.result(p1)});
    dag.tensors[dag.result(p2)].needed = true;
    const Choice c = choice_of(dag);
    EXPECT_THAT(c.unavoidable, ElementsAre(p1, p2));
    EXPECT_THAT(c.needed, ElementsAre(dag.result(p2)));
}

TEST(Execute, runs_what_can_and_names_what_waits) {
    const Choice c = choice(4, {3}, {candidate({1}, {2}, 1), candidate({0}, {1}, 1), candidate({3}, {3}, 1)});
    const Execution run = execute(c, {0, 1, 2});
    EXPECT_THAT(run.order, ElementsAre(1, 0));
    EXPECT_THAT(run.stuck, ElementsAre(2));
    EXPECT_FALSE(run.complete);
}

TEST(WithoutIdle, drops_who_makes_what_is_there_already) {
    const Choice c = choice(4, {2, 3}, {candidate({0}, {1}, 1), candidate({0}, {1, 2}, 1), candidate({1}, {3}, 1)});
    // The first candidate makes tensor 1. The second is kept for tensor 2, or replaces the first if it comes before it.
    EXPECT_THAT(without_idle(c, {0, 1, 2}), ElementsAre(0, 1, 2));
    EXPECT_THAT(without_idle(c, {1, 0, 2}), ElementsAre(1, 2));
}

TEST(CheapPlan, counts_what_each_tensor_takes_and_drops_what_others_make) {
    const Choice c = choice(
        4, {2, 3}, {candidate({0}, {1}, 2), candidate({1}, {2}, 2), candidate({0}, {2, 3}, 5), candidate({1}, {3}, 9)});
    // Tensor 2 alone is cheapest through tensor 1, but the kernel that makes 3 makes it as well.
    EXPECT_THAT(cheap_plan(c), ElementsAre(2));
    EXPECT_THAT(cheap_plan(choice(3, {2}, {candidate({1}, {2}, 1)})), IsEmpty());
}

TEST(Dominating, is_who_gives_more_from_less_for_less) {
    const Choice c = choice(
        5, {3},
        {candidate({0}, {1}, 2), candidate({0}, {1, 2}, 2), candidate({1, 2}, {3}, 5), candidate({1}, {3}, 4),
         candidate({1}, {3}, 4), candidate({4}, {3}, 0), candidate({1}, {3}, std::numeric_limits<double>::infinity())});
    EXPECT_THAT(dominating(c), ElementsAre(1, 1, 3, 3, 3, SIZE_MAX, SIZE_MAX));
}

TEST(Plans, without_a_solver_run_and_cost_no_less_than_the_optimum) {
    int optimal = 0;
    for (uint64_t seed = 0; seed < 300; ++seed) {
        const Choice c = seed % 2 == 0 ? test::random_choice(test::random_dag(seed, 2 + seed % 6, 0.2), seed)
                                       : test::random_system(seed, 4 + seed % 6, 30);
        ASSERT_THAT(c.verify(), IsEmpty());
        const double best = test::cheapest(c);
        const std::vector<size_t> plan = cheap_plan(c);
        ASSERT_EQ(plan.empty(), best == std::numeric_limits<double>::infinity()) << "seed " << seed;
        if (plan.empty()) continue;
        const Execution run = execute(c, plan);
        EXPECT_TRUE(run.complete && run.stuck.empty());
        EXPECT_EQ(run.order, plan);
        EXPECT_EQ(without_idle(c, plan), plan);
        EXPECT_GE(c.cost(plan), best - 1e-9);
        optimal += c.cost(plan) < best + 1e-9 ? 1 : 0;
    }
    EXPECT_GT(optimal, 50);
}

TEST(Dominating, loses_no_optimum) {
    size_t dropped = 0;
    for (uint64_t seed = 0; seed < 300; ++seed) {
        const Choice c = seed % 2 == 0 ? test::random_choice(test::random_dag(seed, 2 + seed % 6, 0.2), seed)
                                       : test::random_system(seed, 4 + seed % 6, 40);
        Choice less = c;
        less.candidates.clear();
        const std::vector<size_t> by = dominating(c);
        for (size_t k = 0; k < by.size(); ++k)
            if (by[k] == k) less.candidates.push_back(c.candidates[k]);
        dropped += c.candidates.size() - less.candidates.size();
        EXPECT_EQ(test::cheapest(less), test::cheapest(c)) << "seed " << seed;
    }
    EXPECT_GT(dropped, 1000u);
}

}  // namespace
}  // namespace tilewright::optimal
