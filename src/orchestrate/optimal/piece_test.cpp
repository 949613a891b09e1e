// The search of a piece, from costs to kernels.

#include "orchestrate/optimal/piece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "orchestrate/optimal/brute_force_test.h"

namespace tilewright::optimal {
namespace {

using testing::ElementsAre;
using testing::Pair;

/// Costs of a launch, per node and per tensor's weight. Some sets of several nodes are no kernels.
struct Costs {
    const Dag& dag;
    uint64_t seed;
    int asked = 0;

    KernelAnswer operator()(const NodeSet& set, const std::vector<TensorId>&, const std::vector<TensorId>& outputs) {
        ++asked;
        std::mt19937_64 rng(seed ^ set.hash());
        if (set.size() > 1 && rng() % 5 == 0)
            return {kInfinity, kInfinity, rng() % 2 == 0 ? "no rows" : "too large", 0, false};
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
            const KernelAnswer answer = costs(set, {}, outputs);
            if (std::isinf(answer.seconds) && first) break;
            first = false;
            if (std::isinf(answer.seconds)) continue;
            choice.candidates.push_back({dag.inputs(set), std::move(outputs), set.nodes(), answer.seconds});
        }
    }
    return test::cheapest(choice);
}

/// A plan by estimates.
PiecePlan plan_piece(const Dag& dag, const std::vector<Candidate>& start, const AskKernel& ask,
                     const PieceOptions& options) {
    PieceSearch search(dag, start, ask, options);
    EXPECT_TRUE(search.next().empty());
    return search.plan();
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
        options.exact = false;
        PieceSearch search(dag, {}, std::ref(costs), options);
        search.price([](const PieceKernel& k) -> PieceSearch::Price { return {k.answer.at_least, false}; });
        size_t measured = 0;
        for (std::vector<size_t> which = search.next(); !which.empty(); which = search.next()) {
            std::vector<double> truly;
            for (const size_t k : which) truly.push_back(search.kernels()[k].answer.seconds);
            search.tell(which, truly);
            measured += which.size();
        }
        const PiecePlan plan = search.plan();
        EXPECT_NEAR(plan.solution.blp.objective, cheapest_of_all(dag, {dag, seed}), 1e-6 * plan.solution.blp.objective);
        EXPECT_EQ(plan.solution.measured, measured);
        for (const PieceKernel& k : plan.kernels) EXPECT_TRUE(k.known);
    }
}

/// A tensor with an alternative layout that one of its readers reads much faster:
///
///     x -> a -> t -> b -> y,  t -> c -> z        b prefers t in its alternative layout, c neither
///
/// Writing it in that layout costs a little more, converting it more than that, reading it in the wrong layout most.
struct TwoLayouts {
    Dag dag = dag_of_edges(3, {{0, 1}, {0, 2}});
    double written_second = 1.5, converted = 3, b_wrong = 10;

    KernelAnswer operator()(const NodeSet& set, const std::vector<TensorId>& reads,
                            const std::vector<TensorId>& writes) const {
        if (set.size() > 1) return {kInfinity, kInfinity, "too large", 0, false};
        if (set.empty()) return {converted, 0, "", 0, false};
        const auto second = [&](const std::vector<TensorId>& list) {
            return !list.empty() && list[0].index() >= dag.tensors.size();
        };
        double seconds = 1;
        if (set.contains(NodeId(0)) && second(writes)) seconds = written_second;
        if (set.contains(NodeId(1)) && !second(reads)) seconds = b_wrong;
        return {seconds, 0, "", 0, false};
    }

    PieceOptions options() const {
        PieceOptions o;
        o.second.assign(dag.tensors.size(), false);
        o.second[dag.result(NodeId(0)).index()] = true;
        return o;
    }
};

TEST(PlanPiece, chooses_layouts_with_kernels) {
    TwoLayouts two;
    PiecePlan plan = plan_piece(two.dag, {}, two, two.options());
    EXPECT_EQ(plan.solution.blp.objective, 1.5 + 1 + 1) << "written as b prefers it, read so by both";
    EXPECT_EQ(plan.conversions, 2u);
    EXPECT_EQ(plan.candidates, 6u) << "each node in two variants";
    two.written_second = 20;
    plan = plan_piece(two.dag, {}, two, two.options());
    EXPECT_EQ(plan.solution.blp.objective, 1 + 3 + 1 + 1) << "a conversion in between";
    EXPECT_EQ(plan.kernels.size(), 4u);
    two.converted = 30;
    EXPECT_EQ(plan_piece(two.dag, {}, two, two.options()).solution.blp.objective, 1 + 10 + 1) << "neither pays";
}

/// Kernels and layouts chosen together, compared with exhaustive search.
TEST(PlanPiece, with_layouts_finds_the_cheapest_plan_of_all_candidates) {
    size_t converted = 0, mixed = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
        const Dag dag = test::random_dag(seed, 2 + seed % 5, 0.1);
        PieceOptions options;
        options.exact = seed % 2 == 0;
        for (const TensorId t : dag.tensors.ids()) {
            options.second.push_back((t.index() * 5 + seed) % 3 != 0);
            options.at_boundary.push_back(options.second.back() && (t.index() + seed) % 2 == 0);
        }
        const size_t n = dag.tensors.size();
        const AskKernel ask = [&](const NodeSet& set, const std::vector<TensorId>& reads,
                                  const std::vector<TensorId>& writes) -> KernelAnswer {
            std::mt19937_64 rng(seed ^ (set.hash() * 31));
            for (const auto* list : {&reads, &writes})
                for (const TensorId t : *list) rng.discard(1 + t.index());
            if (set.empty()) return {0.3 + uniform(rng), 0, "", 0, false};
            return {1 + static_cast<double>(set.size()) * uniform(rng), 0, "", 0, false};
        };
        PieceSearch search(dag, {}, ask, options);
        ASSERT_TRUE(search.next().empty());
        const PiecePlan plan = search.plan();
        options.exact = false;  // keeps all candidates
        Choice choice = choice_of(dag);
        choice.tensors = 2 * n;
        for (auto* ends : {&choice.given, &choice.needed})
            for (TensorId& t : *ends)
                if (options.at_boundary[t.index()]) t = TensorId(t.index() + n);
        const PieceSearch everything(dag, {}, ask, options);
        for (const PieceKernel& k : everything.kernels()) choice.candidates.push_back(k.candidate);
        EXPECT_NEAR(plan.solution.blp.objective, test::cheapest(choice), 1e-6 * plan.solution.blp.objective)
            << "seed " << seed;
        // The plan can run: no tensor is read in a layout that is not made.
        std::vector<size_t> all(plan.kernels.size());
        choice.candidates.clear();
        for (size_t k = 0; k < all.size(); ++k) {
            all[k] = k;
            choice.candidates.push_back(plan.kernels[k].candidate);
            converted += plan.kernels[k].candidate.covers.empty() ? 1 : 0;
        }
        const Execution run = execute(choice, all);
        EXPECT_TRUE(run.complete) << "seed " << seed;
        EXPECT_EQ(run.order, all) << "seed " << seed;
        mixed += plan.conversions > 0 ? 1 : 0;
    }
    EXPECT_GT(converted, 5u);
    EXPECT_GT(mixed, 30u);
}

TEST(PlanPiece, gives_and_takes_what_crosses_its_ends_as_it_is_told) {
    TwoLayouts two;
    two.dag.tensors[two.dag.result(NodeId(0))].needed = true;
    two.b_wrong = 1.1;
    PieceOptions options = two.options();
    EXPECT_EQ(plan_piece(two.dag, {}, two, options).solution.blp.objective, 1 + 1.1 + 1);
    options.at_boundary = options.second;
    EXPECT_EQ(plan_piece(two.dag, {}, two, options).solution.blp.objective, 1.5 + 1 + 1);
}

/// Cheap nodes are computed twice unless that is forbidden:   a -> b, a -> c, and {a, b}, {a, c} cost as much as b and
/// c.
TEST(PlanPiece, nodes_repeat_unless_they_must_not) {
    const Dag dag = dag_of_edges(3, {{0, 1}, {0, 2}});
    const AskKernel ask = [](const NodeSet& set, const std::vector<TensorId>&, const std::vector<TensorId>&) {
        return set.size() == 3 ? KernelAnswer{kInfinity, kInfinity, "too large", 0, false}
                               : KernelAnswer{2, 0, "", 0, false};
    };
    PieceOptions options;
    EXPECT_EQ(plan_piece(dag, {}, ask, options).solution.blp.objective, 4);
    options.once = true;
    const PiecePlan plan = plan_piece(dag, {}, ask, options);
    EXPECT_EQ(plan.solution.blp.status, BlpStatus::Optimal);
    EXPECT_EQ(plan.solution.blp.objective, 4) << "{a, b} writes a as well, and c reads it";
    std::vector<NodeId> covered;
    for (const PieceKernel& k : plan.kernels)
        covered.insert(covered.end(), k.candidate.covers.begin(), k.candidate.covers.end());
    EXPECT_EQ(covered.size(), 3u);
    options.single_output = true;
    EXPECT_EQ(plan_piece(dag, {}, ask, options).solution.blp.objective, 6) << "three kernels";
}

TEST(PlanPiece, without_time_is_the_best_found_and_says_so) {
    const Dag dag = test::random_dag(7, 30);
    Costs costs{dag, 7};
    PieceOptions options;
    options.convex.most_nodes = 5;
    options.most_output_sets = 2;
    const PiecePlan best = plan_piece(dag, {}, std::ref(costs), options);
    ASSERT_EQ(best.solution.blp.status, BlpStatus::Optimal);
    std::vector<Candidate> alone;  // the only initially known plan
    for (const NodeId n : dag.nodes.ids()) {
        const NodeSet set = dag.set({n});
        if (!dag.exposed(set).empty()) alone.push_back({dag.inputs(set), dag.exposed(set), {n}, 0});
    }
    options.seconds = 0;
    const PiecePlan plan = plan_piece(dag, alone, std::ref(costs), options);
    ASSERT_TRUE(plan.started);
    EXPECT_LE(plan.solution.blp.objective, plan.start_seconds);
    EXPECT_GE(plan.solution.blp.objective, best.solution.blp.objective * (1 - 1e-6));
    EXPECT_LE(plan.solution.blp.bound, best.solution.blp.objective * (1 + 1e-6));
    EXPECT_EQ(plan.solution.blp.status == BlpStatus::Optimal, plan.solution.blp.gap() == 0);
}

/// A kernel larger than the limit on sets is a candidate if the initial plan has it.
TEST(PlanPiece, kernels_to_begin_with_are_candidates) {
    const Dag dag = dag_of_edges(5, {{0, 1}, {1, 2}, {2, 3}, {3, 4}});
    const AskKernel ask = [&](const NodeSet& set, const std::vector<TensorId>&, const std::vector<TensorId>&) {
        return KernelAnswer{set.size() == 5 ? 1.0 : static_cast<double>(set.size()), 0, "", 0, false};
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
    const AskKernel ask = [&](const NodeSet& set, const std::vector<TensorId>&, const std::vector<TensorId>&) {
        return set.size() > 1 ? KernelAnswer{kInfinity, kInfinity, "too large", 0, false}
                              : KernelAnswer{1, 1, "", 0, false};
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
