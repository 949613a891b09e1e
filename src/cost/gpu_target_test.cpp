#include "cost/gpu_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "cost/given_test.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

TEST(GpuTarget, of_every_name_makes_sense) {
    for (const std::string& name : gpu_target_names()) {
        const GpuTarget t = given(gpu_target(name));
        EXPECT_EQ(t.name, name);
        EXPECT_EQ(verify(t), "");
        EXPECT_THAT(print(t), HasSubstr("sm_"));
        // Ordinary cores: an SM has 4 x 32 multiply-adds of f32 a cycle from sm_90 on, half of that before.
        const double a_cycle = t.f32_gflops / t.ghz / t.multiprocessors;
        EXPECT_NEAR(a_cycle, t.major >= 9 ? 256 : 128, 3);
        EXPECT_GT(t.f16_gflops, t.tf32_gflops);
    }
    EXPECT_EQ(gpu_target("gpu"), std::nullopt);
}

TEST(GpuTarget, that_contradicts_itself_is_refused) {
    GpuTarget t = h200();
    t.major = 7;
    EXPECT_THAT(verify(t), HasSubstr("8.0 is the oldest"));
    t = h200();
    t.sm_shared_bytes = t.block_shared_bytes - 1;
    EXPECT_THAT(verify(t), HasSubstr("shared memory"));
    t = h200();
    t.memory_gbps = 0;
    EXPECT_THAT(verify(t), HasSubstr("positive"));
    // No GPU reaches ten times of what another does, or a tenth.
    t = h200();
    t.rates.shared_bytes = 1300;
    EXPECT_EQ(verify(t), "shared_bytes is 1300 bytes/clock/SM, expected 12.5 to 1250");
    t.rates.shared_bytes = std::nan("");
    EXPECT_THAT(verify(t), HasSubstr("shared_bytes is nan"));
    t = a100();
    t.rates.group_f16_gflops = 1;
    EXPECT_THAT(verify(t), HasSubstr("group_f16_gflops is 1 GFLOP/s, expected 0 to 0"));
}

/// A GPU of this compute capability, as its driver describes it.
GpuTarget described(int capability) {
    GpuTarget t = h200();
    t.name = "some GPU";
    t.major = capability / 10;
    t.minor = capability % 10;
    assume_peaks(t);
    assume_rates(t);
    return t;
}

TEST(GpuTarget, has_the_instructions_of_its_compute_capability) {
    for (const int capability : {80, 86, 87, 89, 90, 100, 103, 120}) {
        const GpuTarget t = described(capability);
        EXPECT_EQ(t.capability(), capability);
        EXPECT_EQ(t.has_wgmma(), capability == 90);  // no later one has the instructions of sm_90a
        EXPECT_EQ(t.has_tma(), capability >= 90);
        EXPECT_EQ(architecture_name(capability), capability == 90 ? "sm_90a" : "sm_" + std::to_string(capability));
        EXPECT_EQ(verify(t), "") << capability;
        EXPECT_EQ(t.rates.group_f16_gflops > 0, t.has_wgmma());
        EXPECT_EQ(print(t).find("WGMMA") != std::string::npos, t.has_wgmma());
    }
}

TEST(GpuTarget, peaks_that_a_driver_does_not_report_are_those_of_data_sheets) {
    for (const std::string& name : gpu_target_names()) {
        const GpuTarget sheet = given(gpu_target(name));
        GpuTarget t = sheet;
        assume_peaks(t);
        EXPECT_NEAR(t.f32_gflops / sheet.f32_gflops, 1, 0.05) << name;
        EXPECT_NEAR(t.f64_gflops / sheet.f64_gflops, 1, 0.05) << name;
        EXPECT_NEAR(t.tf32_gflops / sheet.tf32_gflops, 1, 0.09) << name;  // a data sheet's clock is below the boost
        EXPECT_NEAR(t.f16_gflops / sheet.f16_gflops, 1, 0.09) << name;
    }
    // An RTX 4090's data sheet: 128 SMs at 2.52 GHz; 82.6 TFLOP/s, 165 in f16 with sums in f32, 1.29 in f64.
    GpuTarget card = described(89);
    card.multiprocessors = 128;
    card.ghz = 2.52;
    assume_peaks(card);
    EXPECT_NEAR(card.f32_gflops, 82580, 50);
    EXPECT_NEAR(card.f16_gflops, 165200, 100);
    EXPECT_NEAR(card.f64_gflops, 1290, 5);
}

TEST(GpuTarget, products_of_warps_reach_the_full_rate_where_nothing_faster_does) {
    for (const int capability : {80, 86, 120}) {
        const GpuTarget t = described(capability);
        EXPECT_DOUBLE_EQ(t.rates.warp_f16_gflops, 0.85 * t.f16_gflops) << capability;
    }
    for (const int capability : {90, 100}) {
        const GpuTarget t = described(capability);
        EXPECT_DOUBLE_EQ(t.rates.warp_tf32_gflops, 0.6 * t.tf32_gflops) << capability;
    }
}

TEST(GpuTarget, prints_where_each_rate_comes_from) {
    GpuTarget t = h200();
    EXPECT_THAT(print(t), HasSubstr("memory_gbps             4800 GB/s            assumed: the data sheet's\n"));
    EXPECT_THAT(print(t), HasSubstr("assumed: an H100's\n"));
    t.measured = true;
    EXPECT_THAT(print(t), testing::AllOf(HasSubstr("measured by bench_probe\n"), testing::Not(HasSubstr("assumed"))));
}

TEST(GpuTarget, holds_as_many_blocks_as_its_scarcest_resource_allows) {
    const GpuTarget t = h200();
    EXPECT_EQ(blocks_of_sm(t, 256, 32, 0), 8);         // 2048 threads
    EXPECT_EQ(blocks_of_sm(t, 32, 32, 0), 32);         // blocks
    EXPECT_EQ(blocks_of_sm(t, 256, 128, 0), 2);        // 65536 registers
    EXPECT_EQ(blocks_of_sm(t, 256, 32, 75 << 10), 3);  // 228 KiB, 1 of which is reserved per block
    EXPECT_EQ(blocks_of_sm(t, 256, 32, 227 << 10), 1);
    EXPECT_EQ(blocks_of_sm(t, 256, 32, (227 << 10) + 1), 0);
    EXPECT_EQ(blocks_of_sm(t, 1025, 32, 0), 0);
    EXPECT_EQ(blocks_of_sm(t, 256, 256, 0), 0);
}

}  // namespace
}  // namespace tilewright
