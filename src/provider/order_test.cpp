// The order of a graph's nodes is the file's where the graph allows it.

#include "provider/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace tilewright::provider {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Order, HasTheSmallestIdFirst) {
    EXPECT_THAT(topological_order({{}, {}, {}}, {5, 3, 4}), ElementsAre(1, 2, 0));
    EXPECT_THAT(topological_order({}, {}), IsEmpty());
}

TEST(Order, HasProducersBeforeReaders) {
    EXPECT_THAT(topological_order({{}, {0}, {}}, {5, 3, 4}), ElementsAre(2, 0, 1));
    EXPECT_THAT(topological_order({{1, 1}, {}}, {0, 1}), ElementsAre(1, 0));  // a value that is read twice
}

TEST(Order, LeavesOutCycles) { EXPECT_THAT(topological_order({{}, {2}, {1}}, {0, 1, 2}), ElementsAre(0)); }

/// A valid order of random graphs is found again from any other one.
TEST(Order, OfAFileIsRestored) {
    std::mt19937_64 rng(7);
    for (int round = 0; round < 50; ++round) {
        const size_t n = 20;
        std::vector<size_t> at(n);  // by position: the id, which is the place in the file
        std::iota(at.begin(), at.end(), 0);
        std::shuffle(at.begin(), at.end(), rng);
        std::vector<size_t> position(n);
        for (size_t p = 0; p < n; ++p) position[at[p]] = p;
        std::vector<std::vector<size_t>> producers(n);
        for (size_t id = 1; id < n; ++id)
            for (size_t k = rng() % 3; k > 0; --k) producers[position[id]].push_back(position[rng() % id]);
        EXPECT_EQ(topological_order(producers, at), position);
    }
}

}  // namespace
}  // namespace tilewright::provider
