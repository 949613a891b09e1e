// Both programs find the optimum of exhaustive search, and their plans can run.

#include "orchestrate/optimal/blp.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orchestrate/optimal/brute_force_test.h"

namespace tilewright::optimal {
namespace {

using testing::ElementsAre;

constexpr BlpForm kForms[] = {BlpForm::Published, BlpForm::Strong};

void expect_optimal(const Choice& choice, const BlpResult& result, const std::string& which) {
    const double best = test::cheapest(choice);
    if (best == std::numeric_limits<double>::infinity()) {
        EXPECT_EQ(result.status, BlpStatus::Infeasible) << which;
        return;
    }
    ASSERT_EQ(result.status, BlpStatus::Optimal) << which;
    EXPECT_NEAR(result.objective, best, 1e-6 * (1 + best)) << which;
    EXPECT_EQ(result.objective, choice.cost(result.chosen));
    EXPECT_NEAR(result.bound, best, 1e-6 * (1 + best)) << which;
    EXPECT_LE(result.root, result.objective + 1e-6 * (1 + best));
    // The plan can run in this order.
    const Execution run = execute(choice, result.chosen);
    EXPECT_TRUE(run.complete) << which;
    EXPECT_EQ(run.order, result.chosen) << which;
}

TEST(Blp, agrees_with_trying_everything_on_graphs) {
    double published = 0, strong = 0, optimum = 0;
    size_t several = 0, twice = 0;
    for (uint64_t seed = 0; seed < 600; ++seed) {
        const Dag dag = test::random_dag(seed, 2 + seed % 7, seed % 3 == 0 ? 0.3 : 0);
        const Choice choice = test::random_choice(dag, seed, SIZE_MAX, 1 + seed % 4);
        for (const BlpForm form : kForms) {
            BlpOptions options;
            options.form = form;
            options.reduce = seed % 2 == 0;
            const BlpResult result = solve(choice, options);
            expect_optimal(choice, result, fmt::format("seed {}, form {}", seed, static_cast<int>(form)));
            (form == BlpForm::Strong ? strong : published) += result.root;
            optimum += form == BlpForm::Strong ? result.objective : 0;
            std::vector<size_t> runs(dag.nodes.size());
            for (const size_t k : result.chosen) {
                several += choice.candidates[k].outputs.size() > 1 ? 1 : 0;
                for (const NodeId n : choice.candidates[k].covers) ++runs[n.index()];
            }
            for (const size_t n : runs) twice += n > 1 ? 1 : 0;
        }
    }
    EXPECT_GT(several, 100u);  // plans with kernels of several outputs
    EXPECT_GT(twice, 20u);     // plans with redundant execution
    EXPECT_GT(strong, published);
    EXPECT_LE(strong, optimum * (1 + 1e-9));
}

TEST(Blp, agrees_with_trying_everything_where_no_node_may_repeat) {
    size_t dearer = 0;
    for (uint64_t seed = 0; seed < 300; ++seed) {
        const Dag dag = test::random_dag(seed, 2 + seed % 7, seed % 3 == 0 ? 0.3 : 0);
        Choice choice = test::random_choice(dag, seed, SIZE_MAX, 1 + seed % 4);
        const double free = solve(choice).objective;
        choice.once = true;
        for (const BlpForm form : kForms) {
            BlpOptions options;
            options.form = form;
            const BlpResult result = solve(choice, options);
            expect_optimal(choice, result, fmt::format("seed {}, form {}", seed, static_cast<int>(form)));
            EXPECT_TRUE(compatible(choice, result.chosen));
            dearer += result.objective > free * (1 + 1e-6) ? 1 : 0;
        }
    }
    EXPECT_GT(dearer, 10u);
}

TEST(Blp, agrees_with_trying_everything_where_kernels_wait_for_each_other) {
    size_t loop_rows = 0;
    for (uint64_t seed = 0; seed < 400; ++seed) {
        const Choice choice = test::random_system(seed, 4 + seed % 7, 8 + seed % 20);
        for (const BlpForm form : kForms) {
            BlpOptions options;
            options.form = form;
            options.reduce = seed % 2 == 0;
            const BlpResult result = solve(choice, options);
            expect_optimal(choice, result, fmt::format("seed {}, form {}", seed, static_cast<int>(form)));
            loop_rows += result.loop_rows;
        }
    }
    EXPECT_GT(loop_rows, 50u);
}

/// a1 -> a2, b1 -> b2. {a1, b2} and {b1, a2} are convex, and neither can run before the other.
TEST(Blp, two_convex_kernels_that_wait_for_each_other_are_no_plan) {
    Dag dag;
    const NodeId a1 = dag.add_node("a1", {dag.add_given("x")}), b1 = dag.add_node("b1", {dag.add_given("y")});
    const NodeId a2 = dag.add_node("a2", {dag.result(a1)}), b2 = dag.add_node("b2", {dag.result(b1)});
    dag.tensors[dag.result(a2)].needed = dag.tensors[dag.result(b2)].needed = true;
    Choice choice = choice_of(dag);
    const auto add = [&](const std::vector<NodeId>& nodes, double cost) {
        const NodeSet set = dag.set(nodes);
        ASSERT_TRUE(Paths(dag).convex(set));
        choice.candidates.push_back({dag.inputs(set), dag.exposed(set), nodes, cost});
    };
    add({a1, b2}, 1);
    add({b1, a2}, 1);
    EXPECT_FALSE(execute(choice, {0, 1}).complete);
    EXPECT_THAT(loops(choice, {0, 1}), ElementsAre(ElementsAre(dag.result(a1), dag.result(b1))));
    for (const BlpForm form : kForms) {
        BlpOptions options;
        options.form = form;
        EXPECT_EQ(solve(choice, options).status, BlpStatus::Infeasible);
    }
    for (const NodeId n : {a1, b1, a2, b2}) add({n}, 2);
    for (const BlpForm form : kForms) {
        BlpOptions options;
        options.form = form;
        const BlpResult result = solve(choice, options);
        ASSERT_EQ(result.status, BlpStatus::Optimal);
        EXPECT_EQ(result.objective,
                  4);  // b1 alone, {a1, b2}, {b1, a2}, which computes b1 again; or with a and b exchanged
        EXPECT_GT(result.loop_rows, 0u);
        EXPECT_GT(result.rounds, 1u);
    }
}

/// Both kernels that write a tensor may be needed. A sum of makers limited to 0 or 1 would forbid that.
TEST(Blp, a_tensor_may_be_written_twice_where_each_writer_is_needed) {
    Choice choice;
    choice.tensors = 4;
    choice.given = {TensorId(0)};
    choice.needed = {TensorId(1), TensorId(2), TensorId(3)};
    choice.candidates = {{{TensorId(0)}, {TensorId(1), TensorId(2)}, {}, 1},
                         {{TensorId(0)}, {TensorId(1), TensorId(3)}, {}, 1}};
    for (const BlpForm form : kForms) {
        BlpOptions options;
        options.form = form;
        EXPECT_THAT(solve(choice, options).chosen, ElementsAre(0, 1));
    }
}

TEST(Blp, what_is_given_already_needs_no_kernel) {
    Choice choice;
    choice.tensors = 1;
    choice.given = choice.needed = {TensorId(0)};
    for (const BlpForm form : kForms) {
        BlpOptions options;
        options.form = form;
        const BlpResult result = solve(choice, options);
        EXPECT_EQ(result.status, BlpStatus::Optimal);
        EXPECT_THAT(result.chosen, ElementsAre());
    }
}

TEST(Blp, costs_of_any_magnitude_are_told_apart) {
    for (const double unit : {1e-9, 1e-6, 1.0, 1e6}) {
        Choice choice = test::random_choice(test::random_dag(5, 7), 5);
        for (Candidate& c : choice.candidates) c.cost *= unit;
        expect_optimal(choice, solve(choice), fmt::format("{}", unit));
    }
}

TEST(Blp, without_time_is_the_plan_to_begin_with_or_a_better_one) {
    const Dag dag = test::random_dag(7, 24);
    const Choice choice = test::random_choice(dag, 7, 5, 2);
    std::vector<size_t> alone;  // every node by itself: an expensive plan
    for (size_t k = 0; k < choice.candidates.size(); ++k)
        if (choice.candidates[k].covers.size() == 1 &&
            choice.candidates[k].outputs == dag.exposed(dag.set(choice.candidates[k].covers)))
            alone.push_back(k);
    BlpOptions options;
    options.seconds = 0;
    options.start = alone;
    const BlpResult result = solve(choice, options);
    EXPECT_TRUE(execute(choice, result.chosen).complete);
    EXPECT_LE(result.objective, choice.cost(alone));
    EXPECT_GT(result.bound, 0);
    EXPECT_LE(result.bound, result.objective);
    const BlpResult whole = solve(choice);
    ASSERT_EQ(whole.status, BlpStatus::Optimal);
    EXPECT_LE(whole.objective, result.objective + 1e-9);
    EXPECT_GE(whole.objective, result.bound - 1e-6 * whole.objective);
}

TEST(Blp, gives_the_same_answer_every_time) {
    const Choice choice = test::random_choice(test::random_dag(11, 25), 11, 6, 3);
    const BlpResult a = solve(choice), b = solve(choice);
    EXPECT_EQ(a.chosen, b.chosen);
    EXPECT_EQ(a.rows, b.rows);
    EXPECT_EQ(a.root, b.root);
}

/// The strong form's relaxation is no weaker than the published one's, and neither is above the optimum.
TEST(Blp, relaxations_bound_the_optimum_the_strong_one_closer) {
    double published = 0, strong = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
        const Choice choice = test::random_choice(test::random_dag(seed, 4 + seed % 12), seed, 5, 2);
        const double weak = relaxation(choice, BlpForm::Published).root;
        const double close = relaxation(choice, BlpForm::Strong).root;
        const BlpResult best = solve(choice);
        EXPECT_LE(weak, close * (1 + 1e-6));
        EXPECT_LE(close, best.objective * (1 + 1e-6));
        EXPECT_NEAR(close, best.root, 1e-6 * close);
        published += weak / best.objective / 60;
        strong += close / best.objective / 60;
    }
    EXPECT_LT(published, 0.96);
    EXPECT_GT(strong, 0.99);
}

TEST(Blp, prints_nothing) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    for (uint64_t seed = 0; seed < 6; ++seed)
        for (const BlpForm form : kForms) {
            BlpOptions options;
            options.form = form;
            options.seconds = seed % 2 == 0 ? 60 : 0;
            solve(test::random_choice(test::random_dag(seed, 10), seed, 5, 3), options);
        }
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace tilewright::optimal
