#include "orchestrate/dynamic/dispatch_table.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <limits>

namespace tilewright::dynamic {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Var var(const char* name) { return *symbol(name).as_var(); }

/// Way 0 takes 100 + n, way 1 takes 3 n: they cross at 50.
double two_ways(uint32_t way, const Bindings& sizes) {
    const auto n = static_cast<double>(sizes.begin()->second);
    return way == 0 ? 100 + n : 3 * n;
}

TEST(DispatchTable, CutsWhereTheFastestWayChanges) {
    const std::vector<GridAxis> grid{{var("n"), {1, 8, 64, 512}}};
    const Dispatch d = dispatch_table(grid, {{}, {}}, 0, two_ways);
    EXPECT_THAT(d.table, ElementsAre(1, 0));
    ASSERT_EQ(d.cuts.size(), 1u);
    EXPECT_THAT(d.cuts[0], ElementsAre(50));
}

TEST(DispatchTable, AWayThatIsFastestEverywhereNeedsNoKeys) {
    const std::vector<GridAxis> grid{{var("m"), {1, 8}}, {var("n"), {1, 64}}};
    const Dispatch d = dispatch_table(grid, {{}, {}}, 0, [](uint32_t way, const Bindings&) { return way + 1.0; });
    EXPECT_THAT(d.keys, IsEmpty());
    EXPECT_THAT(d.table, ElementsAre(0));
}

TEST(DispatchTable, BetweenCoarseSizesThatAgreeNothingIsCompared) {
    // Way 1 is faster where m * n is less than 1000.
    const auto seconds = [](uint32_t way, const Bindings& sizes) {
        return way == 0 ? 1000.0 : static_cast<double>(sizes.at(var("m")) * sizes.at(var("n")));
    };
    std::vector<GridAxis> grid{{var("m"), {}}, {var("n"), {}}};
    for (GridAxis& axis : grid)
        for (int64_t size = 1; size <= 4096; size *= 2) axis.sizes.push_back(size);
    std::atomic<int> all = 0, some = 0;
    const Dispatch whole = dispatch_table(grid, {{}, {}}, 0, [&](uint32_t way, const Bindings& sizes) {
        ++all;
        return seconds(way, sizes);
    });
    for (GridAxis& axis : grid)
        for (size_t i = 0; i < axis.sizes.size(); ++i) axis.coarse.push_back(i % 2 == 0);
    const Dispatch coarse = dispatch_table(grid, {{}, {}}, 0, [&](uint32_t way, const Bindings& sizes) {
        ++some;
        return seconds(way, sizes);
    });
    EXPECT_EQ(coarse.table, whole.table);
    EXPECT_EQ(coarse.cuts, whole.cuts);
    EXPECT_EQ(all, 2 * 13 * 13);
    EXPECT_LT(some, all * 6 / 10);
}

TEST(DispatchGrid, SizesOfSamplesAndEverySecondOfTheOthersAreCoarse) {
    const std::vector<GridAxis> grid =
        dispatch_grid({var("n")}, {{.sizes = {{var("n"), 5}}}, {.sizes = {{var("n"), 64}}}}, {});
    ASSERT_EQ(grid.size(), 1u);
    const GridAxis& a = grid[0];
    ASSERT_EQ(a.coarse.size(), a.sizes.size());
    EXPECT_TRUE(a.coarse.front() && a.coarse.back());
    for (size_t i = 0; i < a.sizes.size(); ++i) {
        const bool sampled = a.sizes[i] == 5 || a.sizes[i] == 64;
        EXPECT_TRUE(a.coarse[i] || !sampled);
        EXPECT_TRUE(a.coarse[i] || a.coarse[i - 1]);
    }
    EXPECT_LT(std::count(a.coarse.begin(), a.coarse.end(), true), static_cast<int64_t>(a.sizes.size()));
}

TEST(DispatchTable, KeysThatDecideNothingAreDropped) {
    const std::vector<GridAxis> grid{{var("m"), {1, 8}}, {var("n"), {1, 16, 128}}};
    const Dispatch d = dispatch_table(grid, {{}, {}}, 0, [](uint32_t way, const Bindings& sizes) {
        return two_ways(way, {{var("n"), sizes.at(var("n"))}});
    });
    EXPECT_THAT(d.keys, ElementsAre(symbol("n")));
    EXPECT_THAT(d.table, ElementsAre(1, 0));
    EXPECT_EQ(d.cuts[0].size(), 1u);
}

TEST(DispatchTable, IllegalWaysAreNotNamed) {
    const std::vector<GridAxis> grid{{var("n"), {1, 8, 64}}};
    const Dispatch d = dispatch_table(grid, {{}, {Expr(16) - symbol("n")}}, 0, [](uint32_t way, const Bindings& sizes) {
        if (way == 0) return 2.0;
        return sizes.begin()->second > 16 ? std::numeric_limits<double>::infinity() : 1.0;
    });
    EXPECT_THAT(d.table, ElementsAre(1, 0));
    EXPECT_THAT(d.cuts[0], ElementsAre(17));
}

/// The points of a grid over n symbols, with samples 1, 16 and 128 of each.
size_t points_of(size_t symbols, std::vector<GridAxis>& grid) {
    std::vector<Var> all;
    for (size_t k = 0; k < symbols; ++k) all.push_back(var(("s" + std::to_string(k)).c_str()));
    std::vector<SizeSample> samples(3);
    for (size_t k = 0; k < samples.size(); ++k) {
        samples[k].weight = k == 1 ? 2 : 1;
        for (const Var v : all) samples[k].sizes[v] = std::vector<int64_t>{1, 16, 128}[k];
    }
    grid = dispatch_grid(all, samples, {});
    size_t n = 1;
    for (const GridAxis& a : grid) n *= a.sizes.size();
    return n;
}

TEST(DispatchGrid, OfManySymbolsHasFewPoints) {
    std::vector<GridAxis> grid;
    for (const size_t symbols : {3, 5, 10, 11, 40}) {
        EXPECT_LE(points_of(symbols, grid), 1'024u) << symbols;
        EXPECT_EQ(grid.size(), symbols);
        EXPECT_GE(grid[0].sizes.size(), 2u);
    }
    EXPECT_THAT(grid.back().sizes, ElementsAre(16));  // of the heaviest sample
}

TEST(DispatchGrid, CoversSamplesAndDeclaredBounds) {
    const Var n = var("n");
    const auto grid = dispatch_grid({n}, {{{{n, 5}}, 1}, {{{n, 100}}, 1}}, {{n, 512}});
    ASSERT_EQ(grid.size(), 1u);
    EXPECT_EQ(grid[0].sizes.front(), 1);
    EXPECT_EQ(grid[0].sizes.back(), 512);
    EXPECT_THAT(grid[0].sizes, testing::Contains(5));
    EXPECT_THAT(grid[0].sizes, testing::Contains(100));
    EXPECT_TRUE(std::is_sorted(grid[0].sizes.begin(), grid[0].sizes.end()));
}

}  // namespace
}  // namespace tilewright::dynamic
