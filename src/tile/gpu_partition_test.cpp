// Partitions of statements over threads, and the values that stay in registers.

#include "tile/gpu_partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tile/gpu_memory.h"
#include "tile/gpu_memory_test.h"
#include "tile/online_cases_test.h"
#include "tile/schedule_cases_test.h"

namespace tilewright::gpu {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TileProgram product_by(const std::string& schedule, const std::string& m = "64", const std::string& n = "96",
                       const std::string& k = "32") {
    return schedule_cases::kernel(schedule_cases::product(m, n, k), schedule_cases::product_axes(m, n, k) + schedule);
}

/// The partition of stage 0.
Partition share(const TileProgram& p, int threads) {
    const Walk tree = walk(p);
    const auto& [path, compute] = tree.computes.at(0);
    return make_partition(*p.stages.primitives[compute->stage].expr(), compute->micro,
                          share_of(p, tree, path, compute->stage), threads);
}
std::optional<int64_t> wanted(const TileProgram& p) {
    const Walk tree = walk(p);
    const auto& [path, compute] = tree.computes.at(0);
    return wanted_threads(*p.stages.primitives[compute->stage].expr(), compute->micro,
                          share_of(p, tree, path, compute->stage));
}

TEST(Partition, HasARegisterTileAThreadAlongTheVectorAxisFirst) {
    const TileProgram p = product_by("compute 0 vector n lanes 4 registers [m=8 n=4] order [n m k] padding local");
    const Partition s = share(p, 256);
    EXPECT_THAT(s.registers, ElementsAre(8, 4, 1));
    EXPECT_THAT(s.tiles, ElementsAre(Expr(8), Expr(24)));
    EXPECT_EQ(s.count, 192);
    EXPECT_THAT(s.order, ElementsAre(size_t{0}, size_t{1}));  // n is the fastest axis
    EXPECT_EQ(s.group, 1);
}

TEST(Partition, LaysVirtualThreadsApart) {
    const Partition s =
        share(product_by("compute 0 vector n lanes 4 registers [m=8 n=8] vthreads [m=2 n=2] padding local"), 128);
    EXPECT_THAT(s.registers, ElementsAre(8, 8, 1));
    EXPECT_THAT(s.strip, ElementsAre(4, 4, 1));
}

TEST(Partition, LetsThreadsShareATileWhereTilesAreFew) {
    const TileProgram few = product_by("compute 0 registers [m=4 n=4] padding local", "4", "8", "512");
    EXPECT_EQ(share(few, 256).group, 128);  // two tiles
    EXPECT_EQ(share(few, 32).group, 16);
    EXPECT_EQ(wanted(few), 512);
    // At most as many threads as have two points each.
    EXPECT_EQ(share(product_by("compute 0 registers [m=4 n=4] padding local", "4", "8", "10"), 256).group, 8);
    // Partial sums stay with the threads that started them.
    const TileProgram parts =
        product_by("for k by 64 {\n compute 0 registers [m=4 n=4] padding local\n}", "4", "8", "512");
    EXPECT_EQ(share(parts, 256).group, 1);
    EXPECT_EQ(wanted(parts), 2);
}

TEST(Partition, KeepsNeighboursSideBySideAlongASpatialVectorAxis) {
    // 64 tiles of four columns in 256 threads: those of a tile are 64 apart, in other warps.
    const Partition p =
        share(product_by("compute 0 vector n lanes 4 registers [n=4] padding local", "1", "256", "512"), 256);
    EXPECT_EQ(p.count, 64);
    EXPECT_EQ(p.group, 4);
    EXPECT_EQ(p.apart, 64);
    EXPECT_TRUE(p.spans_warps());
    EXPECT_EQ(p.exchange_bytes(256, 4, 2), 4 * 256 * 4);  // four sums of each thread at a time
    // Of eight tiles in a warp, neighbours are four threads of each.
    const Partition q =
        share(product_by("compute 0 vector n lanes 4 registers [n=4] padding local", "1", "32", "512"), 32);
    EXPECT_EQ(q.apart, 8);
    EXPECT_FALSE(q.spans_warps());
    // Without a vector axis they are neighbours.
    EXPECT_EQ(share(product_by("compute 0 registers [n=4] padding local", "1", "256", "512"), 256).apart, 1);
}

TEST(Partition, GivesRowsToWarpsWhereTheVectorAxisIsSummedOver) {
    // A thread takes a vector at a time, so a sum of four vectors has four threads, which are neighbours.
    const Partition p = share(product_by("compute 0 vector k lanes 8 registers [k=8] padding local"), 256);
    EXPECT_EQ(p.group, 4);
    EXPECT_EQ(p.registers, (std::vector<int64_t>{1, 1, 8}));
    EXPECT_EQ(p.apart, 1);
    EXPECT_EQ(
        share(product_by("compute 0 vector k lanes 8 registers [k=8] padding local", "$m", "$n", "$k"), 256).group, 32);
    EXPECT_EQ(wanted(product_by("compute 0 padding local", "$m")), std::nullopt);
}

TEST(Partition, GivesThreadsPairsOfRowsWhereTheLeftOperandOfFloatsLiesAlongThem) {
    // c[m, n] = sum(k) a[m, k] b[k, n]: rows n, columns m.
    const std::string micro = " registers [m=64 n=64 k=32] padding local";
    const Partition p = share(product_by("compute 0 matrix tf32 group [n m k]" + micro, "64", "128"), 128);
    EXPECT_THAT(p.spread, ElementsAre(Spread::Columns, Spread::RowPairs, Spread::Quads));
    EXPECT_THAT(p.registers, ElementsAre(16, 2, 8));
    EXPECT_THAT(p.strip, ElementsAre(2, 2, 1));
    EXPECT_THAT(p.tiles, ElementsAre(Expr(1), Expr(2)));
    // In arrays the columns, along which instructions take sums, are last; pairs of rows are read together.
    EXPECT_THAT(p.array_axes(), ElementsAre(size_t{2}, size_t{1}, size_t{0}));
    // One along the sum is read by instructions, as are halves; single warps have PTX's order in any case.
    for (const char* unit : {"tf32 group [m n k]", "f16 group [n m k]", "tf32 [n m k]"})
        EXPECT_THAT(share(product_by(std::string("compute 0 matrix ") + unit + micro, "64", "128"), 128).spread,
                    testing::Each(testing::AnyOf(Spread::Rows, Spread::Columns)));
}

const std::string kParts = R"TW(parallel m by 32 {
  parallel n by 32 {
    for k by 8 {
      compute 0 registers [m=4 n=4] padding local
    }
    store c padding local
  }
})TW";

TEST(RegisterValues, AreSumsThatOneThreadAddsUpAndStores) {
    EXPECT_THAT(test::in_registers(product_by(kParts)), ElementsAre("c"));
    // A result that the Compute itself writes to memory has no buffer.
    EXPECT_THAT(test::in_registers(product_by(changed(kParts, "    store c padding local\n", ""))), IsEmpty());
    // A thread would process several tiles.
    EXPECT_THAT(test::in_registers(product_by(kParts), 32), IsEmpty());
    // A loop over m between the buffer and its Compute gives every thread other rows.
    EXPECT_THAT(
        test::in_registers(product_by(changed(changed(kParts, "for k by 8 {", "for k by 8 { for m by 8 {"),
                                              "padding local\n    }\n    store", "padding local\n    } }\n    store"))),
        IsEmpty());
    // Its tile is larger than a thread's registers.
    EXPECT_THAT(test::in_registers(product_by(changed(kParts, "registers [m=4 n=4]", "registers [m=32 n=16]"))),
                IsEmpty());
}

TEST(RegisterValues, AreReadByStagesThatGoThroughTheSameElements) {
    // e = sum p v stays in registers until o = e / s; c, p and s are reduced, or read by rows.
    EXPECT_THAT(test::in_registers(parse_tile_program(kAttention)), ElementsAre("e"));
}

}  // namespace
}  // namespace tilewright::gpu
