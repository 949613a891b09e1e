// The sets of primitives that can be one kernel: the paper's definitions and examples, and their direct enumeration.

#include "orchestrate/optimal/states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "orchestrate/optimal/random_dag_test.h"

namespace tilewright::optimal {
namespace {

using test::ids;
using test::random_dag;

std::vector<std::string> text(const Dag& dag, const std::vector<NodeSet>& sets) {
    std::vector<std::string> out;
    for (const NodeSet& s : sets) {
        std::string line;
        for (const NodeId n : s.nodes()) line += (line.empty() ? "" : " ") + dag.nodes[n].name;
        out.push_back(line);
    }
    std::sort(out.begin(), out.end());
    return out;
}

/// Figure 3: softmax as exponential, sum, broadcast and division, which reads the exponential again.
Dag softmax() {
    Dag dag;
    const NodeId exp = dag.add_node("exp", {dag.add_given("x")});
    const NodeId sum = dag.add_node("sum", {dag.result(exp)});
    const NodeId spread = dag.add_node("broadcast", {dag.result(sum)});
    const NodeId div = dag.add_node("div", {dag.result(exp), dag.result(spread)});
    dag.tensors[dag.result(div)].needed = true;
    return dag;
}

TEST(ExecutionStates, of_the_papers_softmax) {
    const Dag dag = softmax();
    const std::vector<NodeSet> states = execution_states(dag);
    EXPECT_THAT(text(dag, states),
                testing::ElementsAre("", "exp", "exp sum", "exp sum broadcast", "exp sum broadcast div"));
    // Each state is the previous one with a node, so the convex sets are the runs; {exp, div} is none.
    EXPECT_THAT(text(dag, state_differences(states)),
                testing::ElementsAre("broadcast", "broadcast div", "div", "exp", "exp sum", "exp sum broadcast",
                                     "exp sum broadcast div", "sum", "sum broadcast", "sum broadcast div"));
}

TEST(ExecutionStates, of_two_branches_are_any_share_of_each) {
    //   p1 -> p2 -> p3 -> p6
    //     \-> p4 -> p5 -/        3 x 3 shares of the branches; before and after them one state each
    const Dag dag = dag_of_edges(6, {{0, 1}, {1, 2}, {2, 5}, {0, 3}, {3, 4}, {4, 5}});
    EXPECT_EQ(execution_states(dag).size(), 1u + 9u + 1u);
}

/// The text on Figure 4(a): p5 depends on p3, which depends on p1; {p1, p4, p8} is convex. (The figure's other edges
/// are not in the text, and are chosen here.)
Dag attention_part() { return dag_of_edges(8, {{0, 1}, {0, 2}, {2, 4}, {0, 3}, {1, 5}, {4, 5}, {5, 6}, {3, 7}}); }

TEST(ConvexSets, of_the_papers_attention_have_p1_p4_p8_but_not_p1_p2_p5) {
    const Dag dag = attention_part();
    const Paths paths(dag);
    EXPECT_TRUE(paths.convex(dag.set(ids({0, 3, 7}))));
    EXPECT_FALSE(paths.convex(dag.set(ids({0, 1, 4}))));
    EXPECT_EQ(paths.closure(dag.set(ids({0, 1, 4}))), dag.set(ids({0, 1, 2, 4})));
    const std::vector<NodeSet> sets = convex_sets(dag, paths, {}).sets;
    EXPECT_EQ(std::count(sets.begin(), sets.end(), dag.set(ids({0, 3, 7}))), 1);
    EXPECT_EQ(std::count(sets.begin(), sets.end(), dag.set(ids({0, 1, 4}))), 0);
}

TEST(ConvexSets, of_a_chain_are_its_runs) {
    const Dag dag = dag_of_edges(5, {{0, 1}, {1, 2}, {2, 3}, {3, 4}});
    EXPECT_EQ(convex_sets(dag, Paths(dag), {}).sets.size(), 15u);
}

TEST(ConvexSets, are_theorem_3s_differences_of_states) {
    for (uint64_t seed = 0; seed < 150; ++seed) {
        const Dag dag = random_dag(seed, 1 + seed % 11, 0.2);
        const Paths paths(dag);
        const std::vector<NodeSet> states = execution_states(dag);
        for (const NodeSet& s : states) EXPECT_TRUE(paths.is_state(s));
        std::vector<NodeSet> all = state_differences(states), connected;
        std::copy_if(all.begin(), all.end(), std::back_inserter(connected),
                     [&](const NodeSet& s) { return paths.connected(s); });
        ConvexOptions options;
        std::vector<NodeSet> direct = convex_sets(dag, paths, options).sets;
        std::sort(direct.begin(), direct.end());
        EXPECT_EQ(direct, connected) << "seed " << seed;
        options.connected = false;
        direct = convex_sets(dag, paths, options).sets;
        std::sort(direct.begin(), direct.end());
        EXPECT_EQ(direct, all) << "seed " << seed;
    }
}

TEST(ConvexSets, states_and_sets_are_those_of_all_subsets) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
        const Dag dag = random_dag(seed, 9);
        const Paths paths(dag);
        std::vector<NodeSet> states, sets;
        for (uint64_t bits = 0; bits < 512; ++bits) {
            NodeSet s = dag.none();
            for (size_t n = 0; n < 9; ++n)
                if ((bits >> n & 1) != 0) s.insert(NodeId(n));
            if (paths.is_state(s)) states.push_back(s);
            if (bits != 0 && paths.convex(s)) sets.push_back(s);
        }
        EXPECT_EQ(text(dag, execution_states(dag)), text(dag, states));
        EXPECT_EQ(text(dag, state_differences(states)), text(dag, sets));
    }
}

TEST(ConvexSets, bounds_leave_out_exactly_what_they_say) {
    size_t refused = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
        const Dag dag = random_dag(seed, 10);
        const Paths paths(dag);
        ConvexOptions options;
        const std::vector<NodeSet> all = convex_sets(dag, paths, options).sets;
        options.most_nodes = 1 + seed % 5;
        // Every third node is a product, and a set may have one.
        options.pruned = [&](const NodeSet& s) {
            size_t products = 0;
            for (const NodeId n : s.nodes()) products += n.index() % 3 == 0 ? 1 : 0;
            return products > 1;
        };
        std::vector<NodeSet> expected;
        std::copy_if(all.begin(), all.end(), std::back_inserter(expected),
                     [&](const NodeSet& s) { return s.size() <= options.most_nodes && !options.pruned(s); });
        const ConvexSets found = convex_sets(dag, paths, options);
        EXPECT_EQ(found.sets, expected);
        EXPECT_FALSE(found.capped);
        refused += found.pruned;
    }
    EXPECT_GT(refused, 100u);
}

TEST(ConvexSets, too_many_are_all_sets_up_to_the_size_that_fits) {
    const Dag dag = random_dag(3, 30);
    const Paths paths(dag);
    ConvexOptions options;
    options.most_sets = 500;
    const ConvexSets found = convex_sets(dag, paths, options);
    EXPECT_TRUE(found.capped);
    EXPECT_LE(found.sets.size(), 500u);
    options.most_sets = SIZE_MAX;
    options.most_nodes = found.most_nodes;
    const ConvexSets whole = convex_sets(dag, paths, options);
    EXPECT_FALSE(whole.capped);
    EXPECT_EQ(found.sets, whole.sets);
    ++options.most_nodes;
    EXPECT_GT(convex_sets(dag, paths, options).sets.size(), 500u);
}

TEST(ConvexSets, every_node_alone_is_there_however_low_the_cap) {
    const Dag dag = random_dag(3, 30);
    ConvexOptions options;
    options.most_sets = 1;
    const ConvexSets found = convex_sets(dag, Paths(dag), options);
    EXPECT_EQ(found.sets.size(), 30u);
    EXPECT_EQ(found.most_nodes, 1u);
}

/// Six branches of eight nodes between two nodes: 9^6 states, too many pairs to enumerate.
TEST(ConvexSets, of_a_wide_graph_are_listed_without_its_states) {
    std::vector<std::pair<size_t, size_t>> edges;
    for (size_t b = 0; b < 6; ++b) {
        edges.emplace_back(0, 1 + 8 * b);
        for (size_t k = 0; k < 7; ++k) edges.emplace_back(1 + 8 * b + k, 2 + 8 * b + k);
        edges.emplace_back(8 + 8 * b, 49);
    }
    const Dag dag = dag_of_edges(50, edges);
    ConvexOptions options;
    options.most_nodes = 8;
    const ConvexSets found = convex_sets(dag, Paths(dag), options);
    EXPECT_FALSE(found.capped);
    // 6 * 8 * 9 / 2 runs within branches; around either end, prefixes of six branches with up to seven nodes in total,
    // C(7 + 6, 6).
    EXPECT_EQ(found.sets.size(), 216u + 2 * 1716u);
}

TEST(ExecutionStates, are_counted_as_far_as_asked) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
        const Dag dag = test::random_dag(seed, 3 + seed % 8);
        const size_t all = execution_states(dag).size();
        EXPECT_EQ(count_states(dag, 1'000'000), all);
        EXPECT_EQ(count_states(dag, 3), std::min<size_t>(3, all));
    }
}

}  // namespace
}  // namespace tilewright::optimal
