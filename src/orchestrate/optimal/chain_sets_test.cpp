// The sets that are tried as chains.

#include "orchestrate/optimal/chain_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orchestrate/optimal/random_dag_test.h"

namespace tilewright::optimal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// "012" for each set: nodes by number. In `work`, products are upper case, reductions 'r', others 'e'.
std::vector<std::string> sets(const Dag& dag, const std::string& work, size_t most = 100) {
    std::vector<std::string> out;
    const auto of = [&](NodeId n) {
        const char w = work.at(n.index());
        return w == 'P' ? NodeWork::Product : w == 'r' ? NodeWork::Reduction : NodeWork::Elementwise;
    };
    for (const NodeSet& set : chain_sets(dag, Paths(dag), of, most)) {
        out.emplace_back();
        for (const NodeId n : set.nodes()) out.back() += std::to_string(n.index());
    }
    return out;
}

/// t = transpose k, c = q t, r = max c, p = exp(c - r), s = sum p, w = p / s, e = w v, y = scale e.
/// The last two sets are the softmax as a normalisation before a product.
TEST(ChainSets, of_an_attention_are_its_inside_then_with_the_operand_in_front_and_the_scale_behind) {
    const Dag dag = dag_of_edges(8, {{0, 1}, {1, 2}, {1, 3}, {2, 3}, {3, 4}, {3, 5}, {4, 5}, {5, 6}, {6, 7}});
    EXPECT_THAT(sets(dag, "ePrerePe"), ElementsAre("0123456", "01234567", "123456", "23456", "234567"));
}

TEST(ChainSets, take_along_what_hangs_on_the_inside_alone) {
    // c, mask, masked, e: the mask has no other reader.
    const Dag dag = dag_of_edges(4, {{0, 2}, {1, 2}, {2, 3}});
    EXPECT_THAT(sets(dag, "PeeP"), ElementsAre("0123"));
    // The mask has another reader.
    const Dag shared = dag_of_edges(5, {{0, 2}, {1, 2}, {2, 3}, {1, 4}});
    EXPECT_THAT(sets(shared, "PeePr"), ElementsAre("023"));
}

TEST(ChainSets, are_of_two_and_three_products_without_a_further_one) {
    // Four products in sequence.
    const Dag row = dag_of_edges(4, {{0, 1}, {1, 2}, {2, 3}});
    EXPECT_THAT(sets(row, "PPPP"), ElementsAre("01", "012", "12", "123", "23"));
    // Two products that feed a third: a gate.
    const Dag gate = dag_of_edges(4, {{0, 2}, {1, 2}, {2, 3}});
    EXPECT_THAT(sets(gate, "PPeP"), ElementsAre("023", "0123", "123"));
    // Unconnected products are no chain.
    EXPECT_THAT(sets(dag_of_edges(3, {{0, 2}, {1, 2}}), "PPr"), IsEmpty());
}

/// Mean, centred, variance, normalised, and two products that read the latter.
TEST(ChainSets, are_of_a_product_and_the_normalisation_in_front_of_it) {
    const Dag dag = dag_of_edges(6, {{0, 1}, {1, 2}, {1, 3}, {2, 3}, {3, 4}, {3, 5}});
    EXPECT_THAT(sets(dag, "rerePP"), ElementsAre("01234", "01235"));
    // After a product, and with the scale of the other operand of the second product.
    const Dag more = dag_of_edges(5, {{0, 1}, {0, 2}, {1, 2}, {2, 4}, {3, 4}});
    EXPECT_THAT(sets(more, "PreeP"), ElementsAre("01234", "124", "1234"));
}

TEST(ChainSets, of_any_graph_are_convex_each_once_and_no_more_than_asked_for) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
        const Dag dag = test::random_dag(seed, 12 + seed % 20);
        const Paths paths(dag);
        const auto work = [&](NodeId n) { return static_cast<NodeWork>((n.index() * 7 + seed) % 3); };
        const std::vector<NodeSet> all = chain_sets(dag, paths, work, 1000);
        for (size_t i = 0; i < all.size(); ++i) {
            EXPECT_TRUE(paths.convex(all[i])) << seed;
            for (size_t j = 0; j < i; ++j) EXPECT_FALSE(all[i] == all[j]) << seed;
            size_t products = 0, reductions = 0;
            for (const NodeId n : all[i].nodes()) {
                products += work(n) == NodeWork::Product ? 1 : 0;
                reductions += work(n) == NodeWork::Reduction ? 1 : 0;
            }
            EXPECT_TRUE(products == 2 || products == 3 || (products == 1 && reductions > 0)) << seed;
        }
        EXPECT_LE(chain_sets(dag, paths, work, 3).size(), 3u);
    }
}

}  // namespace
}  // namespace tilewright::optimal
