#include "provider/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <optional>

namespace {

using testing::ElementsAre;
using tilewright::provider::partition;
using Producers = std::vector<std::vector<size_t>>;

TEST(Partition, MakesOneGroupOfASupportedGraph) {
    EXPECT_THAT(partition({{}, {0}, {}, {1, 2}}, {true, true, true, true}), ElementsAre(ElementsAre(0, 1, 2, 3)));
}

TEST(Partition, CutsAroundANodeThatIsNotSupported) {
    EXPECT_THAT(partition({{}, {0}, {0, 1}}, {true, false, true}), ElementsAre(ElementsAre(0), ElementsAre(2)));
}

TEST(Partition, KeepsABranchBesideTheNode) {
    // 0 -> 1 -> 3, 0 -> 2 -> 3: node 2 joins node 0, node 3 follows node 1 and cannot.
    EXPECT_THAT(partition({{}, {0}, {0}, {1, 2}}, {true, false, true, true}),
                ElementsAre(ElementsAre(0, 2), ElementsAre(3)));
}

TEST(Partition, MakesNoGroupWithoutSupportedNodes) { EXPECT_THAT(partition({{}, {0}}, {false, false}), ElementsAre()); }

/// Whether the graph of groups and single nodes has a cycle, by Kahn's algorithm.
bool has_cycle(const Producers& producers, const std::vector<std::vector<size_t>>& groups) {
    std::vector<size_t> unit(producers.size());
    for (size_t i = 0; i < unit.size(); ++i) unit[i] = groups.size() + i;
    for (size_t g = 0; g < groups.size(); ++g)
        for (const size_t i : groups[g]) unit[i] = g;
    const size_t units = groups.size() + producers.size();
    std::vector<std::vector<size_t>> next(units);
    std::vector<size_t> open(units);
    for (size_t i = 0; i < producers.size(); ++i)
        for (const size_t p : producers[i])
            if (unit[p] != unit[i]) {
                next[unit[p]].push_back(unit[i]);
                ++open[unit[i]];
            }
    std::vector<size_t> ready;
    for (size_t u = 0; u < units; ++u)
        if (open[u] == 0) ready.push_back(u);
    size_t done = 0;
    for (; !ready.empty(); ++done) {
        const size_t u = ready.back();
        ready.pop_back();
        for (const size_t v : next[u])
            if (--open[v] == 0) ready.push_back(v);
    }
    return done != units;
}

RC_GTEST_PROP(Partition, NeverMakesACycleAndKeepsEverySupportedNode, ()) {
    const auto n = *rc::gen::inRange<size_t>(1, 40);
    Producers producers(n);
    std::vector<bool> supported(n);
    for (size_t i = 0; i < n; ++i) {
        supported[i] = *rc::gen::inRange(0, 3) != 0;
        if (i > 0)
            producers[i] = *rc::gen::resize(3, rc::gen::container<std::vector<size_t>>(rc::gen::inRange<size_t>(0, i)));
    }
    const auto groups = partition(producers, supported);
    RC_ASSERT(!has_cycle(producers, groups));
    std::vector<bool> grouped(n);
    for (const auto& g : groups)
        for (const size_t i : g) {
            RC_ASSERT(!grouped[i]);
            grouped[i] = true;
        }
    RC_ASSERT(grouped == supported);
}

}  // namespace
