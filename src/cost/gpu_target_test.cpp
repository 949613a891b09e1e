#include "cost/gpu_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
