// The cuts of a graph.

#include "orchestrate/optimal/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "orchestrate/optimal/random_dag_test.h"

namespace tilewright::optimal {
namespace {

using test::ids;
using test::random_dag;

std::vector<size_t> sizes(const Partition& p) {
    std::vector<size_t> out;
    for (const auto& piece : p.pieces) out.push_back(piece.size());
    return out;
}

/// Blocks of two branches that join: one value crosses between blocks, two inside a block.
Dag blocks(size_t n) {
    std::vector<std::pair<size_t, size_t>> edges;
    for (size_t b = 0; b < n; ++b) {
        const size_t at = 6 * b;
        if (b > 0) edges.emplace_back(at - 1, at);
        for (const auto& [from, to] : {std::pair(0, 1), {1, 3}, {0, 2}, {2, 4}, {3, 5}, {4, 5}})
            edges.emplace_back(at + static_cast<size_t>(from), at + static_cast<size_t>(to));
    }
    return dag_of_edges(6 * n, edges);
}

TEST(Partition, cuts_where_one_value_crosses) {
    PartitionOptions options;
    options.most_nodes = 8;
    const Partition p = partition(blocks(4), options);
    EXPECT_EQ(p.cuts, 3u);
    EXPECT_EQ(p.crossing, 3);
    for (size_t k = 1; k < p.pieces.size(); ++k) {
        // Cuts are beside a node at which branches split or join.
        const size_t first = p.pieces[k].front().index() % 6;
        EXPECT_TRUE(first == 0 || first == 1 || first == 5) << first;
    }
}

TEST(Partition, leaves_small_graphs_whole) {
    const Partition p = partition(blocks(4), {});
    EXPECT_EQ(sizes(p), (std::vector<size_t>{24}));
    EXPECT_EQ(p.cuts, 0u);
    EXPECT_EQ(p.crossing, 0);
}

TEST(Partition, light_values_are_cut_rather_than_heavy_ones) {
    Dag dag = dag_of_edges(6, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}});
    for (Dag::Tensor& t : dag.tensors) t.weight = 10;
    dag.tensors[dag.result(NodeId(1))].weight = 1;
    PartitionOptions options;
    options.most_nodes = 4;
    EXPECT_EQ(sizes(partition(dag, options)), (std::vector<size_t>{2, 4}));
}

TEST(Partition, a_depth_first_order_keeps_branches_that_the_graph_interleaves_apart) {
    // Two chains a and b, written a0 b0 a1 b1 ...
    std::vector<std::pair<size_t, size_t>> edges;
    for (size_t k = 0; k < 14; ++k) edges.emplace_back(k, k + 2);
    PartitionOptions options;
    options.most_nodes = 8;
    const Partition p = partition(dag_of_edges(16, edges), options);
    EXPECT_EQ(p.crossing, 0);
    ASSERT_EQ(p.pieces.size(), 2u);
    for (const auto& piece : p.pieces)
        for (const NodeId n : piece) EXPECT_EQ(n.index() % 2, piece[0].index() % 2);
}

TEST(Partition, keeps_together_what_it_can) {
    Dag dag = dag_of_edges(6, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}});
    dag.tensors[dag.result(NodeId(2))].weight = 0.5;  // a cheap cut, but inside a kernel
    PartitionOptions options;
    options.most_nodes = 4;
    options.together = {ids({2, 3, 4})};
    const Partition p = partition(dag, options);
    EXPECT_EQ(sizes(p), (std::vector<size_t>{2, 4}));
    EXPECT_EQ(p.split, 0u);
    options.most_nodes = 2;
    EXPECT_EQ(partition(dag, options).split, 1u);
}

TEST(Partition, lone_nodes_are_pieces_and_keep_their_place) {
    PartitionOptions options;
    options.alone = [](NodeId n) { return n == NodeId(2) || n == NodeId(3); };
    const Partition p = partition(dag_of_edges(6, {{0, 1}, {1, 2}, {2, 3}, {1, 5}, {3, 4}, {4, 5}}), options);
    EXPECT_THAT(p.pieces, testing::ElementsAre(ids({0, 1}), ids({2}), ids({3}), ids({4, 5})));
    EXPECT_EQ(p.cuts, 0u);
}

/// The invariants of partition on random graphs.
TEST(Partition, of_random_graphs_is_an_order_that_can_run_in_bounded_pieces) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
        const Dag dag = random_dag(seed, 1 + seed % 60, 0.1);
        PartitionOptions options;
        options.most_nodes = 1 + seed % 9;
        if (seed % 3 == 0) options.alone = [](NodeId n) { return n.index() % 7 == 3; };
        const Partition p = partition(dag, options);
        EXPECT_EQ(p.pieces, partition(dag, options).pieces);
        std::vector<bool> done(dag.nodes.size());
        size_t n = 0;
        for (const auto& piece : p.pieces) {
            EXPECT_LE(piece.size(), options.most_nodes);
            for (const NodeId node : piece) {
                if (options.alone && options.alone(node)) {
                    EXPECT_EQ(piece.size(), 1u);
                }
                for (const TensorId t : dag.nodes[node].reads)
                    EXPECT_TRUE(!dag.tensors[t].producer || done[dag.tensors[t].producer.index()]);
                EXPECT_FALSE(done[node.index()]);
                done[node.index()] = true;
                ++n;
            }
        }
        EXPECT_EQ(n, dag.nodes.size());
    }
}

TEST(Partition, a_smaller_bound_costs_more_crossings) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
        const Dag dag = random_dag(seed, 60);
        double before = 0;
        for (const size_t bound : {60, 30, 15, 8, 4, 2, 1}) {
            PartitionOptions options;
            options.most_nodes = bound;
            const Partition p = partition(dag, options);
            EXPECT_GE(p.crossing, before) << "seed " << seed << ", at most " << bound;
            before = p.crossing;
        }
        EXPECT_GT(before, 0);
    }
}

}  // namespace
}  // namespace tilewright::optimal
