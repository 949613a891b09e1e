// A Load copies only the part of its box that the task reads.

#include <gtest/gtest.h>

#include <cstring>

#include "backend/cpu/run_kernel_test.h"
#include "tile/tile.h"

namespace tilewright::cpu {
namespace {

using test::run_kernel;

/// A padded 1-D convolution over a dynamic number of points, in tasks of 4 items and 48 points.
constexpr const char* kOpenConvolution = R"(tile conv {
stages {
program conv {
  input x: f32[$n, $w, 8]
  input k: f32[3, 8, 16]
  y: f32[$n, $w, 16] = [$n, 16, $w] -> [i0, i2, i1] sum(i3 < 8, i4 < 3) mul(@0, @1) where @0 = x[i0, i2 + i4 - 1, i3] when i2 + i4 - 1 >= 0 and $w - i2 - i4 >= 0 else 0, @1 = k[i4, i3, i1]
  output y
}
}
axes s0="$n" s1="16" s2="$w" r3="8" r4="3"
stage 0 over [s0 s1 s2 r3 r4]
parallel s0 by 4 {
  parallel s2 by 48 {
    load 0 access 0 layout "" padding local
    compute 0 vector s1 lanes 8 registers [s1=16 s2=6] order [s1 s0 s2 r4 r3] padding partition
  }
}
}
)";

/// Scores of queries with keys that are packed in panels of 16, for at most 512 tokens.
constexpr const char* kBoundedKeys = R"tile(tile scores {
stages {
program scores {
  input q: f32[$n, 26]
  input k: f32[$n, 26]
  bound 512 [$n]
  y: f32[$n, $n] = [$n, $n] sum(i2 < 26) mul(@0, @1) where @0 = q[i0, i2], @1 = k[i1, i2]
  output y
}
}
axes s0="$n" s1="$n" r2="26"
stage 0 over [s0 s1 r2]
load 0 access 1 layout "split(0, 16) reorder(0, 2, 1)" padding local
for s0 by 12 {
    compute 0 vector s1 lanes 8 registers[s0 = 6 s1 = 16] order[s1 s0 r2] padding partition
}
}
)tile";

/// Rows in panels of six, fewer than a vector has lanes.
constexpr const char* kPanelsOfRows = R"tile(tile product {
stages {
program product {
  input x: f32[$m, $k]
  input y: f32[$k, 16]
  z: f32[$m, 16] = [$m, 16] sum(i2 < $k) mul(@0, @1) where @0 = x[i0, i2], @1 = y[i2, i1]
  output z
}
}
axes s0="$m" s1="16" r2="$k"
stage 0 over [s0 s1 r2]
for s0 by 12 {
  for r2 by 40 {
    load 0 access 0 layout "split(0, 6) reorder(0, 2, 1)" padding local
    compute 0 vector s1 lanes 8 registers[s0 = 6 s1 = 16] order[s1 s0 r2] padding partition
  }
}
}
)tile";

/// Rows of pixels, whose channels come last, in panels of 64 of which few are read.
constexpr const char* kPanelOfPixels = R"tile(tile product {
stages {
program product {
  input x: f32[$w, 12]
  input k: f32[4, 12]
  y: f32[4, $w] = [4, $w] sum(i2 < 12) mul(@0, @1) where @0 = x[i1, i2], @1 = k[i0, i2]
  output y
}
}
axes s0="4" s1="$w" r2="12"
stage 0 over [s0 s1 r2]
parallel s1 by 256 {
  load 0 access 0 layout "split(0, 64) reorder(0, 2, 1)" padding local
  compute 0 vector s1 lanes 8 registers[s0 = 4 s1 = 64] order[s1 s0 r2] padding partition
}
}
)tile";

Tensor numbers(const Shape& shape) {
    Tensor t(DType::F32, shape);
    auto* data = static_cast<float*>(t.mutable_data());
    for (size_t i = 0; i < t.bytes() / sizeof(float); ++i) data[i] = static_cast<float>(i * 7 % 13) / 13.0F - 0.4F;
    return t;
}

TEST(CopiedBox, GivesWhatTheInterpreterGivesForAllSizes) {
    const TileProgram program = parse_tile_program(kOpenConvolution);
    ASSERT_TRUE(verify(program).empty());
    const CompiledKernel kernel = compile(program, host_target());
    for (const int64_t n : {1, 3, 4, 5})
        for (const int64_t w : {1, 2, 7, 47, 48, 49, 100}) {
            const std::vector<Tensor> inputs = {numbers({n, w, 8}), numbers({3, 8, 16})};
            EXPECT_LT(largest_difference(interpret(program.stages, inputs), run_kernel(kernel, program, inputs)), 1e-5)
                << n << " x " << w;
        }
}

TEST(CopiedBox, InPanelsGivesWhatTheInterpreterGivesForAllSizes) {
    const TileProgram program = parse_tile_program(kBoundedKeys);
    ASSERT_TRUE(verify(program).empty());
    const CompiledKernel kernel = compile(program, host_target());
    for (const int64_t n : {1, 2, 15, 16, 17, 100, 511, 512}) {
        const std::vector<Tensor> inputs = {numbers({n, 26}), numbers({n, 26})};
        EXPECT_LT(largest_difference(interpret(program.stages, inputs), run_kernel(kernel, program, inputs)), 1e-4)
            << n;
    }
}

TEST(CopiedBox, InPanelsOfFewRowsGivesWhatTheInterpreterGivesForAllSizes) {
    const TileProgram program = parse_tile_program(kPanelsOfRows);
    ASSERT_TRUE(verify(program).empty());
    const CompiledKernel kernel = compile(program, host_target());
    for (const int64_t m : {1, 5, 6, 7, 12, 13, 30})
        for (const int64_t k : {1, 7, 8, 9, 39, 40, 41, 100}) {
            const std::vector<Tensor> inputs = {numbers({m, k}), numbers({k, 16})};
            EXPECT_LT(largest_difference(interpret(program.stages, inputs), run_kernel(kernel, program, inputs)), 1e-4)
                << m << " x " << k;
        }
}

TEST(CopiedBox, InPanelsIsThePanelsThatAreRead) {
    const TileProgram program = parse_tile_program(kBoundedKeys);
    const CompiledKernel kernel = compile(program, host_target());
    constexpr int64_t kTokens = 5, kPanel = 16 * 26;
    ASSERT_GE(kernel.scratch_bytes, 512 * 26 * 4);
    std::vector<float> q(kTokens * 26, 1.0F), k(kTokens * 26, 1.0F), y(kTokens * kTokens);
    std::vector<std::byte> scratch(static_cast<size_t>(kernel.scratch_bytes), std::byte{0x55});
    void* tensors[] = {q.data(), k.data(), y.data()};
    const int64_t names[] = {kTokens};
    kernel.run(tensors, names, 0, 1, scratch.data());
    const auto written =
        std::count_if(scratch.begin(), scratch.end(), [](std::byte b) { return b != std::byte{0x55}; });
    EXPECT_GT(written, 0);
    EXPECT_LE(written, kPanel * 4);
}

TEST(CopiedBox, OfOnePanelIsTheVectorsThatAreRead) {
    const TileProgram program = parse_tile_program(kPanelOfPixels);
    ASSERT_TRUE(verify(program).empty());
    const CompiledKernel kernel = compile(program, host_target());
    for (const int64_t w : {1, 7, 16, 17, 63, 64, 65, 200, 256, 257, 330}) {
        const std::vector<Tensor> inputs = {numbers({w, 12}), numbers({4, 12})};
        EXPECT_LT(largest_difference(interpret(program.stages, inputs), run_kernel(kernel, program, inputs)), 1e-5)
            << w;
    }
    std::vector<float> x(5 * 12, 1.0F), k(4 * 12, 1.0F), y(4 * 5);
    std::vector<std::byte> scratch(static_cast<size_t>(kernel.scratch_bytes), std::byte{0x55});
    void* tensors[] = {x.data(), k.data(), y.data()};
    const int64_t names[] = {5};
    kernel.run(tensors, names, 0, 1, scratch.data());
    const auto written =
        std::count_if(scratch.begin(), scratch.end(), [](std::byte b) { return b != std::byte{0x55}; });
    EXPECT_GT(written, 0);
    EXPECT_LE(written, 16 * 12 * 4);
}

TEST(CopiedBox, IsWhatTheTaskReads) {
    const TileProgram program = parse_tile_program(kOpenConvolution);
    const CompiledKernel kernel = compile(program, host_target());
    constexpr int64_t kItems = 1, kPoints = 4, kUntouched = 0x55;
    ASSERT_GE(kernel.scratch_bytes, 4 * 50 * 8 * 4);
    std::vector<float> x(kPoints * 8, 1.0F), k(size_t{3} * 8 * 16, 1.0F);
    const Tensor y(DType::F32, {kItems, kPoints, 16});
    const auto scratch = std::make_unique<test::GuardedMemory>(static_cast<size_t>(kernel.scratch_bytes),
                                                               test::GuardedMemory::Tight::End, 64);
    std::memset(scratch->data(), kUntouched, static_cast<size_t>(kernel.scratch_bytes));
    std::vector<int64_t> names;
    for (const Var v : kernel.names) names.push_back(var_name(v) == "n" ? kItems : kPoints);
    test::GuardedMemory out(y.bytes(), test::GuardedMemory::Tight::End, 64);
    void* tensors[] = {x.data(), k.data(), out.data()};
    kernel.run(tensors, names.data(), 0, 1, scratch->data());
    int64_t written = 0;
    for (int64_t i = 0; i < kernel.scratch_bytes; ++i)
        written += std::to_integer<int>(scratch->data()[i]) == kUntouched ? 0 : 1;
    EXPECT_GT(written, 0);
    EXPECT_LE(written, (kPoints + 2) * 8 * 4) << "of a box of 4 items and 50 points";
}

}  // namespace
}  // namespace tilewright::cpu
