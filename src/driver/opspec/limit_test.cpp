#include "driver/opspec/limit.h"

#include <gtest/gtest.h>

#include "cost/estimate.h"

#include "compile/pipeline.h"
#include "driver/opspec/op_model.h"
#include "orchestrate/plan.h"

namespace tilewright {
namespace {

/// A machine with two caches and round numbers.
Target machine(int workers = 1) {
    Target t = generic_target(VectorIsa::avx2);
    t.workers = workers;
    t.fma_gflops_1.value = 100;
    t.fma_gflops_all.value = 300;
    t.memory_gbps_1.value = 10;
    t.memory_gbps_all.value = 15;
    t.dispatch_us.value = 5;
    CacheLevel l1, l2;
    l1.bytes = 32 << 10;
    l1.load_gbps.value = 200;
    l2.level = 2;
    l2.bytes = 1 << 20;
    l2.load_gbps.value = 50;
    l2.shared_by = 2;
    t.caches = {l1, l2};
    return t;
}

TEST(Limit, IsTheLongerOfArithmeticAndMemory) {
    const Limit compute = limit_of({1e9, 1000}, machine());
    EXPECT_TRUE(compute.compute);
    EXPECT_DOUBLE_EQ(compute.ms, 10);
    const Limit memory = limit_of({1e6, 1e8}, machine());
    EXPECT_FALSE(memory.compute);
    EXPECT_EQ(memory.level, "memory");
    EXPECT_DOUBLE_EQ(memory.ms, 10);
}

TEST(Limit, TakesTheFirstLevelThatHoldsEverything) {
    EXPECT_DOUBLE_EQ(limit_of({0, 20000}, machine()).gbps, 200);
    EXPECT_DOUBLE_EQ(limit_of({0, 100000}, machine()).gbps, 50);
    EXPECT_DOUBLE_EQ(limit_of({0, 2e6}, machine()).gbps, 10);
}

TEST(Limit, ScalesWithThreads) {
    EXPECT_DOUBLE_EQ(limit_of({1e9, 0}, machine(2)).gflops, 200);
    EXPECT_DOUBLE_EQ(limit_of({1e9, 0}, machine(8)).gflops, 300) << "all threads reach no more";
    EXPECT_EQ(limit_of({0, 60000}, machine(2)).level, "L1") << "two of them";
    EXPECT_EQ(limit_of({0, 1.5e6}, machine(2)).level, "memory") << "two cores share one second level";
    EXPECT_DOUBLE_EQ(limit_of({0, 2e6}, machine(2)).gbps, 15);
}

TEST(Limit, OfAGpuIsThatOfItsUnitsL2AndMemory) {
    const GpuTarget gpu = h200();
    const Target t = with_gpu(machine(), gpu);
    const auto ms = [](double flops, double gflops) { return flops / gflops * 1e-6; };
    EXPECT_DOUBLE_EQ(limit_of({1e12, 1000}, t).ms, ms(1e12, gpu.rates.f32_gflops));
    EXPECT_EQ(limit_of({1e12, 1000}, t).unit, "FMA");
    const Limit tf32 = limit_of({1e12, 1000}, t, Precision::TF32);
    EXPECT_DOUBLE_EQ(tf32.ms, ms(1e12, gpu.rates.group_tf32_gflops));
    EXPECT_EQ(tf32.unit, "tf32");
    EXPECT_EQ(limit_of({1e12, 1000}, t, Precision::BF16).unit, "bf16");
    // Operands of 16 bits are on matrix instructions whatever f32 may be rounded to.
    const Limit half = limit_of({1e12, 1000, 1e12}, t);
    EXPECT_DOUBLE_EQ(half.ms, ms(1e12, gpu.rates.group_f16_gflops));
    EXPECT_EQ(half.unit, "f16");
    const Limit cached = limit_of({0, 1e6}, t), memory = limit_of({0, 1e9}, t);
    EXPECT_EQ(cached.level, "L2");
    EXPECT_EQ(memory.level, "memory");
    EXPECT_DOUBLE_EQ(memory.ms, 1e9 / gpu.rates.memory_gbps * 1e-6);
    EXPECT_GT(cached.gbps, memory.gbps);
}

Compilation compiled(const std::string& line) {
    const ZooModel model = build_op(parse_op(line));
    return compile_model(model.bytes.data(), model.bytes.size());
}

TEST(Bytes, AreThoseOfOperandsAndResultOnce) {
    EXPECT_EQ(bytes_of(compiled("gemm m=8 n=16 k=32").program), 4 * (8 * 32 + 32 * 16 + 8 * 16));
    EXPECT_EQ(bytes_of(compiled("chain m=8 k=32 n=16 h=4").program), 4 * (8 * 32 + 32 * 16 + 16 * 4 + 8 * 4))
        << "without the intermediate result";
}

TEST(Bytes, AreThoseThatAreRead) {
    EXPECT_EQ(bytes_of(compiled("gather rows=3 width=16 count=1000").program), 8 * 3 + 4 * (3 * 16 + 3 * 16) + 2 * 8)
        << "three rows, not the table, and the bounds of the indices";
    EXPECT_EQ(bytes_of(compiled("pool c=2 h=8 kh=1 stride=2").program), 4 * (2 * 16 + 2 * 16))
        << "a quarter of the pixels";
}

TEST(Estimate, AddsUpTheKernels) {
    const Compilation c = compiled("chain m=64 k=64 n=64 h=64");
    ASSERT_GE(c.model->stats().steps, 1);
    double sum = 0;
    for (const Step& step : c.model->plan().steps)
        sum += estimate(c.model->kernels()[std::get<KernelCall>(step.what).kernel], machine()).seconds * 1e3;
    EXPECT_DOUBLE_EQ(estimate_ms(*c.model, machine()), sum);
    EXPECT_GT(sum, 0);
}

TEST(Estimate, CountsWhatAKernelReads) {
    const double small = estimate_ms(*compiled("gather rows=3 width=16 count=1000").model, machine());
    EXPECT_LE(estimate_ms(*compiled("gather rows=3 width=16 count=1000000").model, machine()), 10 * small)
        << "three rows that no cache has, not the table of 64 MB";
}

}  // namespace
}  // namespace tilewright
