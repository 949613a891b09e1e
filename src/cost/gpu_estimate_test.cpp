// The GPU model on numbers worked out by hand.

#include "cost/gpu_estimate.h"

#include <gtest/gtest.h>

#include "cost/given_test.h"

namespace tilewright {
namespace {

/// 100 SMs at 1 GHz, round rates.
GpuTarget round_gpu() {
    GpuTarget t = a100();
    t.multiprocessors = 100;
    t.ghz = 1;
    t.memory_gbps = 1000;
    t.f32_gflops = 16000;
    t.f16_gflops = 160000;
    assume_rates(t);
    t.rates.launch_us = 2;
    return t;
}

TEST(GpuEstimate, adds_up_what_a_kernel_asks_for) {
    GpuWork w;
    w.compute_seconds = 80e-6;
    w.memory_bytes = 124e6;  // 40 us from the second-level cache
    w.once_bytes = 20e6;     // 20 us from memory
    w.shared_bytes = 125 * 1e9 * 100 * 60e-6;
    w.blocks = 420;
    w.waits = 10;
    w.threads = 256;
    w.registers = 64;  // four blocks of an SM
    const GpuEstimate e = gpu_estimate(w, round_gpu());
    EXPECT_NEAR(e.memory_seconds, 40e-6, 1e-12);
    EXPECT_NEAR(e.shared_seconds, 60e-6, 1e-12);
    EXPECT_NEAR(e.wait_seconds, 2 * 4e-6, 1e-12);  // two waves, ten waits of 0.4 us in each
    // The maximum plus a tenth of the others, on the SMs that have five blocks of 4.2; a fifth of the waits; the
    // launch.
    EXPECT_NEAR(e.seconds, (80e-6 + 0.1 * 100e-6) * 5 / 4.2 + 1.6e-6 + 2e-6, 1e-12);
}

TEST(GpuEstimate, counts_the_slots_in_which_schedulers_issue_instructions_beside_products) {
    GpuWork w;
    w.compute_seconds = 80e-6;
    w.blocks = 400;
    w.threads = 256;
    w.registers = 64;                 // four blocks of an SM
    w.slots = 4 * 1e9 * 100 * 60e-6;  // four instructions a clock and SM
    const GpuEstimate e = gpu_estimate(w, round_gpu());
    EXPECT_NEAR(e.issue_seconds, 60e-6, 1e-12);
    const double alone = e.seconds - (80e-6 + 0.1 * 60e-6);
    w.slots *= 2;
    EXPECT_NEAR(gpu_estimate(w, round_gpu()).seconds, alone + 120e-6 + 0.1 * 80e-6, 1e-12);
}

TEST(GpuEstimate, counts_the_parts_of_sums_that_the_last_blocks_add) {
    GpuWork w;
    w.compute_seconds = 80e-6;
    w.blocks = 300;
    w.threads = 256;
    const double whole = gpu_estimate(w, round_gpu()).seconds;
    add_parts(w, 3, 31e3);
    // Every block writes its part, and that is read once.
    EXPECT_EQ(w.memory_bytes, 2 * 300 * 31e3);
    // Behind three waits of 0.4 us an SM reads the three parts of its tile, 31 bytes a clock.
    const GpuEstimate e = gpu_estimate(w, round_gpu());
    EXPECT_NEAR(e.join_seconds, 1.2e-6 + 3e-6, 1e-12);
    EXPECT_GT(e.seconds, whole + e.join_seconds);
    GpuWork one;
    add_parts(one, 1, 31e3);
    EXPECT_EQ(one.memory_bytes, 0);
    EXPECT_EQ(gpu_estimate(one, round_gpu()).join_seconds, 0);
}

TEST(GpuEstimate, uses_the_rates_that_are_measured_in_place_of_the_assumed_ones) {
    GpuWork w;
    w.compute_seconds = 80e-6;
    w.memory_bytes = w.once_bytes = 20e6;
    w.shared_bytes = 125 * 1e9 * 100 * 60e-6;
    w.blocks = 100;
    w.waits = 10;
    w.drains = 10;
    w.threads = 256;
    GpuTarget gpu = round_gpu();
    const GpuEstimate assumed = gpu_estimate(w, gpu);
    gpu.rates.memory_gbps *= 0.5;
    EXPECT_NEAR(gpu_estimate(w, gpu).memory_seconds, 2 * assumed.memory_seconds, 1e-12);
    gpu.rates.cache_bytes *= 0.1;
    EXPECT_NEAR(gpu_estimate(w, gpu).memory_seconds, 20e6 / (3.1 * 1e9 * 100), 1e-12);
    gpu.rates.shared_bytes *= 2;
    EXPECT_NEAR(gpu_estimate(w, gpu).shared_seconds, assumed.shared_seconds / 2, 1e-12);
    gpu.rates.copy_us = 0.2;
    EXPECT_NEAR(gpu_estimate(w, gpu).wait_seconds, assumed.wait_seconds / 2, 1e-12);
    const double before = gpu_estimate(w, gpu).seconds;
    gpu.rates.launch_us = 5;
    EXPECT_NEAR(gpu_estimate(w, gpu).seconds, before + 3e-6, 1e-12);
    const double launched = gpu_estimate(w, gpu).seconds;
    gpu.rates.drain_us = 1.03;
    EXPECT_NEAR(gpu_estimate(w, gpu).seconds, launched + 10 * 1e-6 / 8, 1e-12);  // eight blocks of an SM
    // Products run at the rate of their instructions.
    gpu.rates.warp_f16_gflops = 7;
    gpu.rates.warp_tf32_gflops = 3;
    gpu.rates.f32_gflops = 2;
    EXPECT_EQ(gpu_flops(gpu, MatrixUnit{MatrixType::BF16, 0, 1, 2}), 7e9);
    EXPECT_EQ(gpu_flops(gpu, MatrixUnit{MatrixType::TF32, 0, 1, 2}), 3e9);
    EXPECT_EQ(gpu_flops(gpu, std::nullopt), 2e9);
    GpuTarget hopper = h200();
    hopper.rates.group_f16_gflops = 11;
    EXPECT_EQ(gpu_flops(hopper, MatrixUnit{MatrixType::F16, 0, 1, 2, MatrixForm::Group}), 11e9);
}

TEST(GpuEstimate, knows_that_drained_matrix_units_stand_still_unless_another_block_has_something_for_them) {
    GpuWork w;
    w.compute_seconds = 80e-6;
    w.blocks = 100;
    w.threads = 256;
    w.block_bytes = 100 << 10;  // one of an SM's 164 KiB
    const auto more = [&] {
        const double without = gpu_estimate(w, round_gpu()).seconds;
        GpuWork drained = w;
        drained.drains = 10;
        return gpu_estimate(drained, round_gpu()).seconds - without;
    };
    EXPECT_NEAR(more(), 10 * 0.03e-6, 1e-12);
    w.block_bytes = 50 << 10;  // three
    EXPECT_NEAR(more(), 10 * 0.03e-6 / 3, 1e-12);
}

TEST(GpuEstimate, knows_that_few_warps_leave_a_multiprocessor_idle) {
    GpuWork w;
    w.compute_seconds = 80e-6;
    w.blocks = 100;  // one per SM
    w.threads = 64;  // two of the eight warps that keep an SM busy
    EXPECT_NEAR(gpu_estimate(w, round_gpu()).seconds, 80e-6 * 4 + 0.2 * 0.4e-6 + 2e-6, 1e-12);
    w.busy_warps = 2;  // all that there are
    EXPECT_NEAR(gpu_estimate(w, round_gpu()).seconds, 80e-6 + 0.2 * 0.4e-6 + 2e-6, 1e-12);
}

TEST(GpuEstimate, knows_that_statements_which_wait_for_each_other_overlap_with_those_of_other_blocks_alone) {
    GpuWork w;
    w.compute_seconds = 80e-6;
    w.memory_bytes = 124e6;  // 40 us
    w.blocks = 400;
    w.threads = 256;
    w.registers = 64;  // four blocks of an SM
    const double pipelined = gpu_estimate(w, round_gpu()).seconds;
    w.phases = true;
    EXPECT_NEAR(gpu_estimate(w, round_gpu()).seconds - pipelined, (0.25 - 0.1) * 40e-6, 1e-12);
    w.registers = 255;  // one
    EXPECT_NEAR(gpu_estimate(w, round_gpu()).seconds - pipelined, (1 - 0.1) * 40e-6 + 0.2 * 3 * 0.4e-6, 1e-12);
}

TEST(GpuEstimate, of_a_tree_counts_what_its_statements_do) {
    // 64 x 64 x 32 in four blocks of 32 x 32, two steps each; a thread has 4 x 4 points.
    const TileProgram t = parse_tile_program(R"(tile product {
stages {
program product {
  input a: f32[64, 32]
  input b: f32[32, 64]
  c: f32[64, 64] = [64, 64] sum(i2 < 32) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  output c
}
}
axes m="64" n="64" k="32"
stage 0 over [m n k]
parallel m by 32 {
  parallel n by 32 {
    for k by 16 stages 2 {
      load 0 access 0 layout "" padding local
      load 0 access 1 layout "" padding local
      compute 0 vector n lanes 4 registers [m=4 n=4] padding local
    }
    store c padding local
  }
}
})");
    ASSERT_EQ(verify(t), std::vector<std::string>());
    EXPECT_EQ(given(shared_bytes(t)), 2 * ((32 * 16 + 16 * 32) * 4 + 2 * 64));  // two of each, with padding
    const GpuTarget gpu = round_gpu();
    const GpuEstimate e = gpu_estimate(t, gpu);
    EXPECT_EQ(e.blocks, 4);
    EXPECT_NEAR(e.compute_seconds, 2.0 * 64 * 64 * 32 / (0.85 * 16e12), 1e-15);
    // Copies 4 x 2 x (32 x 16 + 16 x 32) floats and the result, through the second-level cache.
    const double copies = 4.0 * 2 * 2 * 32 * 16 * 4;
    EXPECT_NEAR(e.memory_seconds, std::max((64 * 32 * 2 + 64 * 64) * 4 / 1e12, (copies + 64 * 64 * 4) / 3.1e12), 1e-15);
    // Copies are written once, and each multiply-add reads a quarter of a word of either operand. The first rows of A
    // of a warp's four tiles are 64 words apart, in one bank.
    EXPECT_NEAR(e.shared_seconds, (copies + 64.0 * 64 * 32 * (0.25 * 4 + 0.25) * 4) / (125 * 1e9 * 100), 1e-15);
    EXPECT_NEAR(e.wait_seconds, 0.4e-6, 1e-15);
}

TEST(GpuEstimate, counts_no_reads_of_values_that_stay_in_registers) {
    // The sums of a product, their maxima along rows, and the differences are in the threads of the product.
    const std::string head = R"(tile softmax {
stages {
program softmax {
  input a: f16[64, 16]
  input b: f16[16, 64]
  c: f32[64, 64] = [64, 64] sum(i2 < 16) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
)";
    const std::string tree = R"(parallel m by 16 {
  load 0 access 0 layout "" padding local
  load 0 access 1 layout "" padding local
  compute 0 matrix f16 [m n k] registers [m=16 n=64 k=16] padding local
)";
    const TileProgram sums = parse_tile_program(head + R"(  output c
}
}
axes m="64" n="64" k="16"
stage 0 over [m n k]
)" + tree + "  store c padding local\n}\n}\n");
    const TileProgram differences =
        parse_tile_program(head + R"(  r: f32[64, 1] = [64] -> [i0, 0] max(i1 < 64) @0 where @0 = c[i0, i1]
  d: f32[64, 64] = [64, 64] sub(@0, @1) where @0 = c[i0, i1], @1 = r[i0, 0]
  output d
}
}
axes m="64" n="64" k="16"
stage 0 over [m n k]
stage 1 over [m n]
stage 2 over [m n]
)" + tree + R"(  compute 1 vector n lanes 4 registers [n=16] padding partition
  compute 2 vector n lanes 4 registers [n=8] padding partition
}
}
)");
    for (const TileProgram* t : {&sums, &differences}) EXPECT_EQ(verify(*t), std::vector<std::string>());
    EXPECT_NEAR(gpu_estimate(differences, round_gpu()).shared_seconds, gpu_estimate(sums, round_gpu()).shared_seconds,
                1e-15);
}

/// A chain of two products in blocks of 64 rows, whose results are in registers: 2,048 of the second, in tiles
/// `second`.
TileProgram chain_of(const std::string& second) {
    return parse_tile_program(R"(tile chain {
stages {
program chain {
  input a: f32[6400, 16]
  input b: f32[16, 32]
  input d: f32[32, 32]
  c: f32[6400, 32] = [6400, 32] sum(i2 < 16) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  e: f32[6400, 32] = [6400, 32] sum(i2 < 32) mul(@0, @1) where @0 = c[i0, i2], @1 = d[i2, i1]
  output e
}
}
axes m="6400" n="32" k="16" h="32"
stage 0 over [m n k]
stage 1 over [m h n]
parallel m by 64 {
  load 0 access 0 layout "" padding local
  for n by 16 {
    load 0 access 1 layout "" padding local
    load 1 access 1 layout "" padding local
    compute 0 vector n lanes 4 registers [m=4 n=4] padding local
    compute 1 vector h lanes 4 registers )" +
                              second + R"( padding local
  }
  store e padding local
}
})");
}

TEST(GpuEstimate, knows_that_warps_without_a_part_of_a_statement_wait_for_the_others) {
    const TileProgram even = chain_of("[m=4 h=4]"), uneven = chain_of("[m=8 h=8]");
    for (const TileProgram* t : {&even, &uneven}) ASSERT_EQ(verify(*t), std::vector<std::string>());
    // 256 threads share the first product, four of them a tile; of the second 128 or 32 have a tile each.
    const double first = 2.0 * 6400 * 32 * 16 / (0.85 * 16e12), second = 2 * first;
    EXPECT_NEAR(gpu_estimate(even, round_gpu()).compute_seconds, first + 2 * second, 1e-12);
    EXPECT_NEAR(gpu_estimate(uneven, round_gpu()).compute_seconds, first + 8 * second, 1e-12);
    // The results of both are in registers at once.
    EXPECT_EQ(gpu_estimate(even, round_gpu()).registers, 32 + 16 + 16);
    EXPECT_EQ(gpu_estimate(uneven, round_gpu()).registers, 32 + 16 + 64);
}

/// 32 threads of a warp with four columns each: of 16 bytes eight threads are served together, on different banks. Of
/// one float after the other 32 are, four on each of eight banks.
TEST(GpuEstimate, counts_bank_conflicts_of_reads_as_they_are_annotated) {
    const std::string head = R"(tile product {
stages {
program product {
  input a: f32[32, 16]
  input b: f32[16, 128]
  c: f32[32, 128] = [32, 128] sum(i2 < 16) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  output c
}
}
axes m="32" n="128" k="16"
stage 0 over [m n k]
parallel m by 32 {
  load 0 access 0 layout "" padding local
  load 0 access 1 layout "" padding local
  compute 0 vector n lanes 4 registers [m=4 n=4] padding local)";
    const auto shared_seconds = [&](const std::string& annotation) {
        const TileProgram t = parse_tile_program(head + annotation + "\n  store c padding local\n}\n}\n");
        EXPECT_EQ(verify(t), std::vector<std::string>());
        return gpu_estimate(t, round_gpu()).shared_seconds;
    };
    EXPECT_EQ(shared_seconds(""), shared_seconds(" read 1 by 4 write by 1"));
    EXPECT_NEAR(shared_seconds(" write by 1") - shared_seconds(" read 1 by 4 write by 1"),
                32.0 * 128 * 16 * (4 - 1) / 4 * 4 / (125 * 1e9 * 100), 1e-15);
}

TEST(GpuEstimate, counts_the_registers_of_a_thread) {
    StageModel s;
    s.extents = {64, 64, 64};
    s.spatial = 2;
    s.product = s.reduces = true;
    for (const auto& [strides, depends] :
         {std::pair(std::vector<int64_t>{64, 0, 1}, std::vector<bool>{true, false, true}),
          std::pair(std::vector<int64_t>{0, 1, 64}, std::vector<bool>{false, true, true})}) {
        OperandModel o;
        o.extents = {64, 64};
        o.strides = strides;
        o.depends = depends;
        for (const size_t a : {0, 1, 2})
            if (strides[a] != 0) o.parts.push_back({strides[a], IndexReach(axis(a), 1)});
        std::sort(o.parts.begin(), o.parts.end(), [](const auto& x, const auto& y) { return x.stride < y.stride; });
        s.operands.push_back(o);
    }
    s.operands.push_back({});
    s.operands.back().result = true;
    Micro m;
    m.registers = {8, 4, 1};
    EXPECT_EQ(gpu_registers(s, m).results, 32);
    EXPECT_EQ(gpu_registers(s, m).operands, 12);
    // A warp's 32 x 16 tile: 16 results a thread; 48 x 16 halves for a step of an instruction, two per register.
    m.matrix = MatrixUnit{MatrixType::F16, 0, 1, 2};
    m.registers = {32, 16, 16};
    EXPECT_EQ(gpu_registers(s, m).results, 16);
    EXPECT_EQ(gpu_registers(s, m).operands, 12);
    // A warpgroup's operands are in shared memory, but for a left one of floats along the rows: 64 rows by 32 of the
    // sum in 128 threads, twice.
    m.matrix = MatrixUnit{MatrixType::TF32, 0, 1, 2, MatrixForm::Group};
    m.registers = {64, 256, 32};
    EXPECT_EQ(gpu_registers(s, m).results, 128);
    EXPECT_EQ(gpu_registers(s, m).operands, 0);
    m.matrix->rows = 1;
    m.matrix->columns = 0;
    m.registers = {256, 64, 32};
    EXPECT_EQ(gpu_registers(s, m).results, 128);
    EXPECT_EQ(gpu_registers(s, m).operands, 32);
}

}  // namespace
}  // namespace tilewright
