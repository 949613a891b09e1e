// Issue slots of an attention's statements, worked out by hand.

#include "cost/gpu_slots.h"

#include <gtest/gtest.h>

#include "tile/gpu_memory.h"

namespace tilewright {
namespace {

/// Two steps of 64 keys for 64 rows. `second`: the statement of the second product.
TileProgram attention(const std::string& second) {
    return parse_tile_program(R"TW(tile attention {
stages {
program attention {
  input q: f16[1, 64, 64]
  input k: f16[1, 128, 64]
  input v: f16[1, 128, 64]
  c: f32[1, 64, 128] = [1, 64, 128] sum(i3 < 64) mul(@0, @1) then mul(acc, 0.125) where @0 = q[i0, i1, i3], @1 = k[i0, i2, i3]
  r: f32[1, 64, 1] = [1, 64, 1] max(i3 < 128) @0 where @0 = c[i0, i1, i3]
  p: f32[1, 64, 128] = [1, 64, 128] exp(sub(@0, @1)) where @0 = c[i0, i1, i2], @1 = r[i0, i1, 0]
  s: f32[1, 64, 1] = [1, 64, 1] sum(i3 < 128) @0 where @0 = p[i0, i1, i3]
  e: f32[1, 64, 64] = [1, 64, 64] sum(i3 < 128) mul(@0, @1) where @0 = p[i0, i1, i3], @1 = v[i0, i3, i2]
  o: f16[1, 64, 64] = [1, 64, 64] div(@0, @1) where @0 = e[i0, i1, i2], @1 = s[i0, i1, 0]
  output o
}
}
axes x0="1" x1="64" x2="128" x3="64" x4="1" x5="1" x6="64"
stage 0 over [x0 x1 x2 x3]
stage 1 over [x0 x1 x4 x2]
stage 2 over [x0 x1 x2]
stage 3 over [x0 x1 x5 x2]
stage 4 over [x0 x1 x6 x2]
stage 5 over [x0 x1 x6]
parallel x0 by 1 {
  load 0 access 0 layout "split(2, 64) reorder(0, 2, 1, 3)" swizzle 128 padding local
  for x2 by 64 stages 2 {
    load 0 access 1 layout "split(2, 64) reorder(0, 2, 1, 3)" swizzle 128 padding local
    load 4 access 1 layout "split(2, 64) reorder(0, 2, 1, 3)" swizzle 128 padding local
    compute 0 matrix f16 group [x1 x2 x3] registers [x1=64 x2=64 x3=64] padding local
    compute 1 online vector x2 lanes 4 registers [x2=16] order [x0 x1 x4 x2] padding partition
    compute 2 vector x2 lanes 4 registers [x2=8] order [x0 x1 x2] padding partition
    compute 3 vector x2 lanes 4 registers [x2=16] order [x0 x1 x5 x2] padding partition
)TW" + second + R"TW(  }
  compute 5 vector x6 lanes 4 registers [x6=8] order [x0 x1 x6] padding partition
}
})TW");
}

/// Of each statement, for a tile that a step or a part of it has.
std::vector<double> slots(const TileProgram& t, int64_t columns) {
    EXPECT_EQ(verify(t), std::vector<std::string>());
    const Walk tree = walk(t);
    const std::set<ValueId> held = gpu::block_memory(t, kGpuBlockThreads, 227 << 10).registers.all();
    const GpuSlots of(t, tree, held);
    const std::vector<std::vector<int64_t>> tiles = {{1, 64, 64, 64}, {1, 64, 1, 64},       {1, 64, 64},
                                                     {1, 64, 1, 64},  {1, 64, columns, 64}, {1, 64, 64}};
    std::vector<double> out;
    for (const auto& [path, compute] : tree.computes) out.push_back(of.of(path, *compute, tiles[compute->stage.value]));
    return out;
}

TEST(GpuSlots, areThoseOfStatementsWhoseValuesAreInRegisters) {
    const std::vector<double> found =
        slots(attention("    compute 4 matrix f16 group [x1 x6 x2] registers [x1=64 x6=64 x2=64] padding local\n"), 64);
    const double scores = 64 * 64 / 32.0, results = 64 * 64 / 32.0, rows = 64 / 8.0;
    ASSERT_EQ(found.size(), size_t{6});
    // Four instructions of each of four warps, with their descriptors. The scores' factor is their readers'.
    EXPECT_EQ(found[0], 4 * 4 * 5);
    EXPECT_EQ(found[1], scores + 20 * rows);
    EXPECT_EQ(found[2], 2 * scores);  // a multiply-add, an exponential
    EXPECT_EQ(found[3], scores + 64 / 32.0);
    // Probabilities are packed in pairs, and what has been added up is rescaled.
    EXPECT_EQ(found[4], 4 * 4 * 5 + scores / 2 + results);
    EXPECT_GT(found[5], results);
}

TEST(GpuSlots, countReadsAndWritesOfSumsInSharedMemory) {
    // Parts of the columns leave no result in registers from one step to the next.
    const std::vector<double> found = slots(attention("    for x6 by 32 {\n      compute 4 matrix f16 group [x1 x6 x2] "
                                                      "registers [x1=64 x6=32 x2=64] padding local\n    }\n"),
                                            32);
    const double scores = 64 * 64 / 32.0, results = 64 * 32 / 32.0;
    EXPECT_EQ(found[4], 4 * 4 * 5 + scores / 2 + results + 2 * results);
}

}  // namespace
}  // namespace tilewright
