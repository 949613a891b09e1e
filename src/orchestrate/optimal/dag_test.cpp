// Graphs of primitives: sets of nodes, their inputs and outputs, paths.

#include "orchestrate/optimal/dag.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orchestrate/optimal/random_dag_test.h"
#include "orchestrate/program_test.h"

namespace tilewright::optimal {
namespace {

using test::ids;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(NodeSet, behaves_like_a_set) {
    std::mt19937_64 rng(1);
    for (int round = 0; round < 200; ++round) {
        const size_t n = 1 + rng() % 150;
        std::set<NodeId> a, b;
        NodeSet x(n), y(n);
        for (size_t k = 0; k < n / 2; ++k) {
            const NodeId i(rng() % n), j(rng() % n);
            a.insert(i), x.insert(i);
            b.insert(j), y.insert(j);
        }
        const auto same = [](const NodeSet& s, const std::set<NodeId>& t) {
            return s.nodes() == std::vector<NodeId>(t.begin(), t.end()) && s.size() == t.size();
        };
        std::set<NodeId> both, either = a, only;
        either.insert(b.begin(), b.end());
        for (const NodeId i : a) (b.count(i) != 0 ? both : only).insert(i);
        EXPECT_TRUE(same(x | y, either) && same(x & y, both) && same(x - y, only));
        EXPECT_EQ(x.meets(y), !both.empty());
        EXPECT_EQ(x.subset_of(y), only.empty());
        EXPECT_TRUE((x & y).subset_of(x));
        EXPECT_EQ(x.first(), a.empty() ? NodeId() : *a.begin());
        EXPECT_EQ(x == y, a == b);
        if (x == y) {
            EXPECT_EQ(x.hash(), y.hash());
        }
    }
}

TEST(Dag, says_what_a_set_reads_and_what_leaves_it) {
    //      x -> p1 -> p2 -> p4
    //             \-> p3 -/          p2 is a result as well
    Dag dag;
    const TensorId x = dag.add_given("x");
    const NodeId p1 = dag.add_node("p1", {x});
    const NodeId p2 = dag.add_node("p2", {dag.result(p1)});
    const NodeId p3 = dag.add_node("p3", {dag.result(p1), x});
    const NodeId p4 = dag.add_node("p4", {dag.result(p2), dag.result(p3)});
    dag.tensors[dag.result(p2)].needed = dag.tensors[dag.result(p4)].needed = true;
    ASSERT_THAT(dag.verify(), IsEmpty());
    EXPECT_THAT(dag.inputs(dag.set({p2, p4})), ElementsAre(dag.result(p1), dag.result(p3)));
    EXPECT_THAT(dag.exposed(dag.set({p2, p4})), ElementsAre(dag.result(p2), dag.result(p4)));
    EXPECT_THAT(dag.inputs(dag.all()), ElementsAre(x));
    EXPECT_THAT(dag.exposed(dag.set({p1})), ElementsAre(dag.result(p1)));
    EXPECT_THAT(dag.exposed(dag.set({p1, p2, p3})), ElementsAre(dag.result(p2), dag.result(p3)));
}

TEST(Dag, verify_names_what_is_wrong) {
    Dag dag = dag_of_edges(3, {{0, 1}, {1, 2}});
    std::swap(dag.nodes[NodeId(1)].reads, dag.nodes[NodeId(2)].reads);
    EXPECT_THAT(dag.verify(), testing::Contains("p2 reads p2, which is not made before it"));
    dag = dag_of_edges(2, {{0, 1}});
    dag.nodes[NodeId(1)].writes.push_back(dag.result(NodeId(0)));
    EXPECT_THAT(dag.verify(), testing::Contains("p1 has two producers"));
}

TEST(Dag, of_a_program_has_its_primitives_and_knows_no_constants) {
    const Program p = tilewright::test::with_weights(R"(program t {
  input x: f32[6, 8]
  input w: f32[8, 4]
  p: f32[6, 4] = [6, 4] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  y: f32[6, 4] = [6, 4] max(@0, 0.0) where @0 = p[i0, i1]
  output y
})");
    const Dag dag = dag_of(p);
    ASSERT_THAT(dag.verify(), IsEmpty());
    ASSERT_EQ(dag.nodes.size(), 2u);
    const auto tensor = [&](const std::string& name) { return TensorId(tilewright::test::value_of(p, name).index()); };
    EXPECT_THAT(dag.nodes[NodeId(0)].reads, ElementsAre(tensor("x")));
    EXPECT_THAT(dag.nodes[NodeId(1)].reads, ElementsAre(tensor("p")));
    EXPECT_EQ(dag.tensors[tensor("x")].weight, 6 * 8 * 4);
    EXPECT_FALSE(dag.tensors[tensor("p")].needed);
    EXPECT_TRUE(dag.tensors[tensor("y")].needed);
}

TEST(Dag, a_piece_takes_what_others_make_and_gives_what_others_read) {
    const Dag dag = dag_of_edges(5, {{0, 1}, {1, 2}, {1, 3}, {2, 4}, {3, 4}});
    const Piece piece = piece_of(dag, ids({1, 2}));
    ASSERT_THAT(piece.dag.verify(), IsEmpty());
    EXPECT_THAT(piece.nodes.ids(), testing::SizeIs(2));
    EXPECT_EQ(piece.nodes[NodeId(1)], NodeId(2));
    std::string text;
    for (const TensorId t : piece.dag.tensors.ids()) {
        const Dag::Tensor& tensor = piece.dag.tensors[t];
        EXPECT_EQ(dag.tensors[piece.tensors[t]].name, tensor.name);
        text += tensor.name + (tensor.producer ? "" : " given") + (tensor.needed ? " needed" : "") + "; ";
    }
    EXPECT_EQ(text, "p1 given; p2 needed; p3 needed; ");
}

/// Reachability by the Floyd-Warshall algorithm.
std::vector<std::vector<bool>> reach(const Dag& dag) {
    const size_t n = dag.nodes.size();
    std::vector<std::vector<bool>> r(n, std::vector<bool>(n));
    for (const NodeId v : dag.nodes.ids())
        for (const TensorId t : dag.nodes[v].reads)
            if (dag.tensors[t].producer) r[dag.tensors[t].producer.index()][v.index()] = true;
    for (size_t k = 0; k < n; ++k)
        for (size_t i = 0; i < n; ++i)
            for (size_t j = 0; j < n; ++j) r[i][j] = r[i][j] || (r[i][k] && r[k][j]);
    return r;
}

TEST(Paths, agree_with_the_definitions_on_random_sets) {
    int convex = 0, states = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
        const Dag dag = test::random_dag(seed, 2 + seed % 12, 0.2);
        ASSERT_THAT(dag.verify(), IsEmpty());
        const Paths paths(dag);
        const auto r = reach(dag);
        std::mt19937_64 rng(seed);
        for (int round = 0; round < 40; ++round) {
            NodeSet set = dag.none();
            for (const NodeId n : dag.nodes.ids())
                if (rng() % 2 == 0) set.insert(n);
            NodeSet between = set;
            bool closed = true;
            for (const NodeId q : dag.nodes.ids()) {
                if (set.contains(q)) continue;
                bool from = false, to = false;
                for (const NodeId m : set.nodes()) {
                    from = from || r[m.index()][q.index()];
                    to = to || r[q.index()][m.index()];
                }
                if (from && to) between.insert(q);
                closed = closed && !to;
            }
            EXPECT_EQ(paths.convex(set), between == set);
            EXPECT_EQ(paths.closure(set), between);
            EXPECT_EQ(paths.is_state(set), closed);
            convex += between == set ? 1 : 0;
            states += closed ? 1 : 0;
            NodeSet sum = dag.none();
            for (const NodeSet& part : paths.parts(set)) {
                EXPECT_FALSE(part.empty() || part.meets(sum));
                EXPECT_TRUE(paths.connected(part));
                for (const NodeId n : part.nodes()) EXPECT_TRUE((paths.beside(n) & set).subset_of(part));
                sum |= part;
            }
            EXPECT_EQ(sum, set);
        }
    }
    EXPECT_GT(convex, 100);
    EXPECT_GT(states, 50);
}

}  // namespace
}  // namespace tilewright::optimal
