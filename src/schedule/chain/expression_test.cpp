// The space of tiling expressions and its pruning by the four rules, on the paper's numbers and compared with counting.

#include "schedule/chain/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>

#include "cost/given_test.h"
#include "schedule/chain/chains_test.h"

namespace tilewright::chain {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

const std::vector<std::string> kNames = {"m", "n", "k", "h", "p"};

std::vector<std::string> texts(const std::vector<TilingExpression>& all) {
    std::vector<std::string> out;
    out.reserve(all.size());
    for (const TilingExpression& e : all) out.push_back(print(e, kNames));
    return out;
}

constexpr double kUnlimited = 1e18;

TEST(AllExpressions, of_two_products_are_24_deep_ones_and_2_flat_ones) {
    const Chain c = given(make_chain(two_products(64, 64, 64, 64)));
    const std::vector<TilingExpression> all = all_expressions(c);
    ASSERT_EQ(all.size(), 26u);
    EXPECT_EQ(std::count_if(all.begin(), all.end(), [](const auto& e) { return e.groups.empty(); }), 24);
    const std::vector<std::string> found = texts(all);
    for (const char* text : {"mhnk", "mnkh", "nhkm", "mn(k,h)", "nm(k,h)"}) EXPECT_THAT(found, Contains(text));
    EXPECT_EQ(std::set<std::string>(found.begin(), found.end()).size(), 26u);
}

TEST(AllExpressions, of_three_products_are_120_deep_ones_and_6_flat_ones) {
    const Chain c = given(make_chain(three_products(32, 32, 32, 32, 32)));
    const std::vector<TilingExpression> all = all_expressions(c);
    EXPECT_EQ(all.size(), 120u + 6);
    // k and p belong to one product each; the middle product has no axis of its own.
    EXPECT_THAT(texts({all.end() - 6, all.end()}),
                UnorderedElementsAre("mnh(k,p)", "mhn(k,p)", "nmh(k,p)", "nhm(k,p)", "hmn(k,p)", "hnm(k,p)"));
}

TEST(Rule1, leaves_a_block_what_is_summed_along) {
    const Chain c = given(make_chain(two_products(64, 64, 64, 64)));
    std::set<std::string> blocks;
    for (const TilingExpression& e : all_expressions(c)) blocks.insert(print(block_expression(c, e), kNames));
    // The paper counts five; its 26 expressions without the loops bound to the grid leave these.
    EXPECT_THAT(blocks, UnorderedElementsAre("nk", "kn", "n(k,h)"));
}

TEST(Rule2, refuses_sums_that_keep_several_tiles_of_partial_results) {
    const Chain c = given(make_chain(two_products(64, 64, 64, 64)));
    const SpaceCounts n = count_space(c, kUnlimited);
    EXPECT_EQ(n.after_rule_1, 3u);
    EXPECT_EQ(n.after_rule_2, 2u);
    EXPECT_THAT(texts(make_space(c).expressions), UnorderedElementsAre("nk", "n(k,h)"));
}

TEST(Rule2, orders_the_sums_of_longer_chains) {
    const Chain c = given(make_chain(three_products(32, 32, 32, 32, 32)));
    // Orders of n, k and h, and nh(k,p), hn(k,p).
    EXPECT_EQ(count_space(c, kUnlimited).after_rule_1, 8u);
    // k inside n, n inside h.
    EXPECT_THAT(texts(make_space(c).expressions), UnorderedElementsAre("hnk", "hn(k,p)"));
}

TEST(Space, of_the_paper_s_example_has_its_size) {
    const Chain c = given(make_chain(two_products(1024, 1024, 512, 512)));
    const SpaceCounts n = count_space(c, 512 << 10);
    EXPECT_EQ(n.expressions, 26u);
    EXPECT_EQ(n.all, 109051904);  // 26 x (1024 / 16)^2 x (512 / 16)^2
    EXPECT_EQ(n.rule_1, 3.0 * 64 * 64 * 32 * 32);
    EXPECT_EQ(n.rule_2, 2.0 * 64 * 64 * 32 * 32);
    EXPECT_EQ(n.rule_3, 2.0 * 7 * 7 * 6 * 6);  // powers of two from 16 on
    EXPECT_LT(n.rule_3, 0.01 * n.rule_2);      // "discards 99 % of impractical tile sizes"
    EXPECT_LT(n.rule_4, n.rule_3);
    EXPECT_GT(n.rule_4, 0);
}

TEST(Rule3, tiles_divide_powers_of_two_and_waste_less_than_a_twentieth_of_others) {
    EXPECT_THAT(tile_sizes(64), ElementsAre(16, 32, 64));
    EXPECT_THAT(tile_sizes(16), ElementsAre(16));
    EXPECT_THAT(tile_sizes(7), ElementsAre(7));
    EXPECT_THAT(tile_sizes(96), ElementsAre(16, 32, 48, 96));
    EXPECT_THAT(tile_sizes(12, 4), ElementsAre(4, 12));
    // 2 tiles of 160 are 320 points, 3 of 112 are 336 and waste 5 %.
    EXPECT_THAT(tile_sizes(320), ElementsAre(16, 32, 64, 80, 160, 320));
    for (int64_t extent = 1; extent <= 700; ++extent) {
        const std::vector<int64_t> sizes = tile_sizes(extent);
        EXPECT_TRUE(std::is_sorted(sizes.begin(), sizes.end()));
        for (int64_t t = 1; t <= extent; ++t) {
            const int64_t covered = (extent + t - 1) / t * t;
            const bool power = std::has_single_bit(static_cast<uint64_t>(extent));
            const bool allowed =
                t == extent || (t % 16 == 0 && (covered == extent || (!power && 20 * (covered - extent) < extent)));
            EXPECT_EQ(std::count(sizes.begin(), sizes.end(), t), allowed ? 1 : 0) << t << " of " << extent;
        }
    }
}

TEST(Rule4, counts_every_tile_once) {
    const Chain c = given(make_chain(two_products(64, 96, 128, 32)));
    // tiles of m, n, k, h: A, B, C, D, E
    EXPECT_EQ(TileBytes(c)({16, 32, 64, 8}), 4 * (16 * 64 + 64 * 32 + 16 * 32 + 32 * 8 + 16 * 8));
    EXPECT_EQ(TileBytes(c)({64, 96, 128, 32}), 4 * (64 * 128 + 128 * 96 + 64 * 96 + 96 * 32 + 64 * 32));
    // A tile is no larger than its axis.
    EXPECT_EQ(TileBytes(c)({640, 960, 1280, 320}), TileBytes(c)({64, 96, 128, 32}));
}

TEST(Rule4, counts_one_head_of_an_attention) {
    const Chain one = given(make_chain(attention(1, 64, 64, 16, 16))),
                many = given(make_chain(attention(8, 64, 64, 16, 16)));
    EXPECT_EQ(TileBytes(one)({16, 16, 16, 16}), TileBytes(many)({16, 16, 16, 16}));
}

TEST(Rule4, leaves_what_counting_leaves) {
    const Chain c = given(make_chain(two_products(128, 96, 64, 80)));
    for (const double capacity : {4e3, 2e4, 4e4, 1e5, 1e6}) {
        const Space space = make_space(c);
        double left = 0;
        for (const int64_t m : space.sizes[0])
            for (const int64_t n : space.sizes[1])
                for (const int64_t k : space.sizes[2])
                    for (const int64_t h : space.sizes[3])
                        left += 4.0 * static_cast<double>(m * k + k * n + m * n + n * h + m * h) <= 1.2 * capacity;
        EXPECT_DOUBLE_EQ(count_space(c, capacity).rule_4, 2 * left) << capacity;
    }
}

}  // namespace
}  // namespace tilewright::chain
