// The output sets of a set, and the sets that no optimal plan needs.

#include "orchestrate/optimal/candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orchestrate/optimal/brute_force_test.h"

namespace tilewright::optimal {
namespace {

using test::ids;
using testing::ElementsAre;

std::vector<std::string> output_names(const Dag& dag, const NodeSet& set, size_t most = 100) {
    std::vector<std::string> out;
    for (const auto& outputs : output_sets(dag, set, most)) {
        out.emplace_back();
        for (const TensorId t : outputs) out.back() += (out.back().empty() ? "" : " ") + dag.tensors[t].name;
    }
    return out;
}

/// p1 -> p2 -> p3 -> p4, and p1, p2, p3 have further readers p5, p6, p7.
Dag comb() { return dag_of_edges(7, {{0, 1}, {1, 2}, {2, 3}, {0, 4}, {1, 5}, {2, 6}}); }

TEST(OutputSets, a_value_that_others_read_may_be_computed_again_by_them) {
    EXPECT_THAT(output_names(comb(), comb().set(ids({0, 1}))), ElementsAre("p1 p2", "p2"));
}

TEST(OutputSets, the_last_of_a_set_are_always_written) {
    EXPECT_THAT(output_names(comb(), comb().set(ids({0, 1, 4}))), ElementsAre("p2 p5"));
    EXPECT_THAT(output_names(comb(), comb().set(ids({0, 1, 2}))), ElementsAre("p1 p2 p3", "p3", "p2 p3", "p1 p3"));
}

TEST(OutputSets, come_in_order_up_to_a_number) {
    EXPECT_THAT(output_names(comb(), comb().set(ids({0, 1, 2, 3}))),
                ElementsAre("p1 p2 p3 p4", "p4", "p2 p3 p4", "p1 p3 p4", "p1 p2 p4", "p3 p4", "p2 p4", "p1 p4"));
    EXPECT_THAT(output_names(comb(), comb().set(ids({0, 1, 2, 3})), 3), ElementsAre("p1 p2 p3 p4", "p4", "p2 p3 p4"));
}

TEST(OutputSets, one_of_the_outputs_of_a_last_node_is_enough) {
    Dag dag;
    const NodeId split = dag.add_node("split", {dag.add_given("x")});
    dag.tensors[dag.result(split)].needed = true;
    dag.tensors[dag.add_output(split, "other")].needed = true;
    EXPECT_THAT(output_names(dag, dag.all()), ElementsAre("split other", "split", "other"));
}

TEST(OutputSets, what_nobody_needs_is_in_no_kernel) {
    Dag dag = dag_of_edges(2, {{0, 1}});
    dag.tensors[dag.result(NodeId(1))].needed = false;
    EXPECT_THAT(output_names(dag, dag.all()), ElementsAre());
}

/// All subsets of the exposed tensors, as in Algorithm 1, give no better plan if less computation and fewer writes cost
/// less.
TEST(OutputSets, lose_no_optimum_where_less_work_costs_less) {
    for (uint64_t seed = 0; seed < 60; ++seed) {
        const Dag dag = test::random_dag(seed, 6, 0.2);
        std::mt19937_64 rng(seed);
        std::vector<double> launch(64);
        for (double& x : launch) x = 3 * uniform(rng);
        const auto cost = [&](const Candidate& c) {
            double sum = 2;
            for (const NodeId n : c.covers) sum += launch[n.index()];
            for (const TensorId t : c.inputs) sum += launch[32 + t.index()];
            for (const TensorId t : c.outputs) sum += launch[32 + t.index()];
            return sum;
        };
        Choice all = choice_of(dag), some = all;
        for (const NodeSet& set : convex_sets(dag, Paths(dag), {}).sets) {
            const std::vector<TensorId> exposed = dag.exposed(set);
            const auto add = [&](Choice& to, std::vector<TensorId> outputs) {
                Candidate c{dag.inputs(set), std::move(outputs), set.nodes(), 0};
                c.cost = cost(c);
                to.candidates.push_back(std::move(c));
            };
            for (uint64_t bits = 1; bits < uint64_t{1} << exposed.size(); ++bits) {
                std::vector<TensorId> outputs;
                for (size_t i = 0; i < exposed.size(); ++i)
                    if ((bits >> i & 1) != 0) outputs.push_back(exposed[i]);
                add(all, outputs);
            }
            for (const auto& outputs : output_sets(dag, set, 1000)) add(some, outputs);
        }
        EXPECT_LE(some.candidates.size(), all.candidates.size());
        EXPECT_NEAR(test::cheapest(some), test::cheapest(all), 1e-9) << "seed " << seed;
    }
}

TEST(KnownCosts, find_the_cheaper_way_through_smaller_kernels) {
    // p1 -> p2 -> p3. Single nodes cost 1, {p1 p2} 1.5, {p2 p3} 9, the whole set 2.6.
    const Dag dag = dag_of_edges(3, {{0, 1}, {1, 2}});
    const std::vector<NodeSet> sets = convex_sets(dag, Paths(dag), {}).sets;
    const std::vector<KnownCost> known = known_costs(dag, Paths(dag), sets, {1, 1, 1, 1.5, 9, 2.6});
    EXPECT_EQ(known[3].without, 2);
    EXPECT_EQ(known[4].with, 2);
    EXPECT_EQ(known[5].without, 2.5);
    EXPECT_EQ(known[5].with, 2.5);
}

TEST(KnownCosts, leaving_out_what_they_undercut_loses_no_optimum) {
    size_t dropped = 0;
    for (uint64_t seed = 0; seed < 200; ++seed) {
        const Dag dag = test::random_dag(seed, 2 + seed % 6, 0.2);
        const Paths paths(dag);
        std::mt19937_64 rng(seed);
        const std::vector<NodeSet> sets = convex_sets(dag, paths, {}).sets;
        Choice all = choice_of(dag), some = all;
        std::vector<double> whole;
        std::vector<std::vector<Candidate>> of_set;
        for (const NodeSet& set : sets) {
            of_set.emplace_back();
            for (std::vector<TensorId>& out : output_sets(dag, set, 4)) {
                Candidate c{dag.inputs(set), std::move(out), set.nodes(), 0};
                c.cost = test::kernel_cost(dag, c, rng);
                of_set.back().push_back(std::move(c));
            }
            whole.push_back(of_set.back().empty() ? std::numeric_limits<double>::infinity() : of_set.back()[0].cost);
        }
        const std::vector<KnownCost> known = known_costs(dag, paths, sets, whole);
        for (size_t i = 0; i < sets.size(); ++i)
            for (const Candidate& c : of_set[i]) {
                all.candidates.push_back(c);
                if (c.cost >= known[i].without)
                    ++dropped;
                else
                    some.candidates.push_back(c);
            }
        EXPECT_NEAR(test::cheapest(some), test::cheapest(all), 1e-9) << "seed " << seed;
    }
    EXPECT_GT(dropped, 200u);
}

}  // namespace
}  // namespace tilewright::optimal
