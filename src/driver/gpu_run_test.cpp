// Whole models for a GPU, with their kernels executed on this CPU.

#include "driver/gpu_run.h"
#include "compile/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/gpu_model.h"
#include "program/random_program.h"

namespace tilewright {
namespace {

TEST(GpuRun, ParsesTargets) {
    EXPECT_EQ(gpu_of("cuda:sm_80")->capability(), 80);
    EXPECT_EQ(gpu_of("cuda")->capability(), 90);
    EXPECT_EQ(gpu_of("cuda:sm_90a")->capability(), 90);
    EXPECT_FALSE(gpu_of("cpu"));
    EXPECT_FALSE(gpu_of("cuda:sm_70"));
}

/// A layer of a transformer: projections, attention, normalisation, two products with a gate between them.
const char* const kLayer = R"(program layer {
  input x: f32[20, 32]
  input wq: f32[32, 32]
  input wk: f32[32, 32]
  input wv: f32[32, 32]
  input w0: f32[32, 48]
  input w1: f32[48, 32]
  q: f32[20, 32] = [20, 32] sum(i2 < 32) mul(@0, @1) where @0 = x[i0, i2], @1 = wq[i2, i1]
  k: f32[20, 32] = [20, 32] sum(i2 < 32) mul(@0, @1) where @0 = x[i0, i2], @1 = wk[i2, i1]
  v: f32[20, 32] = [20, 32] sum(i2 < 32) mul(@0, @1) where @0 = x[i0, i2], @1 = wv[i2, i1]
  c: f32[2, 20, 20] = [2, 20, 20] sum(i3 < 16) mul(@0, @1) then mul(acc, 0.25) where @0 = q[i1, 16 * i0 + i3], @1 = k[i2, 16 * i0 + i3]
  r: f32[2, 20, 1] = [2, 20, 1] max(i3 < 20) @0 where @0 = c[i0, i1, i3]
  p: f32[2, 20, 20] = [2, 20, 20] exp(sub(@0, @1)) where @0 = c[i0, i1, i2], @1 = r[i0, i1, 0]
  s: f32[2, 20, 1] = [2, 20, 1] sum(i3 < 20) @0 where @0 = p[i0, i1, i3]
  a: f32[2, 20, 20] = [2, 20, 20] div(@0, @1) where @0 = p[i0, i1, i2], @1 = s[i0, i1, 0]
  o: f32[20, 32] = [20, 32] sum(i2 < 20) mul(@0, @1) then add(acc, @2) where @0 = a[i1 // 16, i0, i2], @1 = v[i2, i1], @2 = x[i0, i1]
  mean: f32[20, 1] = [20, 1] sum(i2 < 32) @0 then div(acc, 32.0) where @0 = o[i0, i2]
  d: f32[20, 32] = [20, 32] sub(@0, @1) where @0 = o[i0, i1], @1 = mean[i0, 0]
  h: f32[20, 48] = [20, 48] sum(i2 < 32) mul(@0, @1) then max(acc, 0.0) where @0 = d[i0, i2], @1 = w0[i2, i1]
  y: f32[20, 32] = [20, 32] sum(i2 < 48) mul(@0, @1) then add(acc, @2) where @0 = h[i0, i2], @1 = w1[i2, i1], @2 = o[i0, i1]
  output y
})";

/// What a driver says of a GPU of this compute capability; graphics cards have 99 KiB of shared memory a block.
GpuTarget described(int capability) {
    const bool card = capability % 10 != 0 || capability > 100;
    GpuTarget t = h200();
    t.name = "sm_" + std::to_string(capability);
    t.major = capability / 10;
    t.minor = capability % 10;
    if (card) {
        t.sm_threads = 1536;
        t.sm_blocks = capability == 86 ? 16 : 24;
        t.block_shared_bytes = 99 << 10;
        t.sm_shared_bytes = 100 << 10;
        t.l2_bytes = int64_t{6} << 20;
    }
    assume_peaks(t);
    assume_rates(t);
    return t;
}

/// Large products, a chain, an attention: what takes most shared memory where it may.
const char* const kLarge = R"(program large {
  input x: f16[1024, 1024]
  input w0: f16[1024, 2048]
  input w1: f16[2048, 512]
  input q: f16[8, 512, 64]
  input k: f16[8, 512, 64]
  input v: f16[8, 512, 64]
  h: f16[1024, 2048] = [1024, 2048] sum(i2 < 1024) mul(@0, @1) then max(acc, 0.0) where @0 = x[i0, i2], @1 = w0[i2, i1]
  y: f32[1024, 512] = [1024, 512] sum(i2 < 2048) mul(@0, @1) where @0 = h[i0, i2], @1 = w1[i2, i1]
  c: f32[8, 512, 512] = [8, 512, 512] sum(i3 < 64) mul(@0, @1) then mul(acc, 0.125) where @0 = q[i0, i1, i3], @1 = k[i0, i2, i3]
  r: f32[8, 512, 1] = [8, 512, 1] max(i3 < 512) @0 where @0 = c[i0, i1, i3]
  p: f32[8, 512, 512] = [8, 512, 512] exp(sub(@0, @1)) where @0 = c[i0, i1, i2], @1 = r[i0, i1, 0]
  s: f32[8, 512, 1] = [8, 512, 1] sum(i3 < 512) @0 where @0 = p[i0, i1, i3]
  e: f32[8, 512, 64] = [8, 512, 64] sum(i3 < 512) mul(@0, @1) where @0 = p[i0, i1, i3], @1 = v[i0, i3, i2]
  o: f32[8, 512, 64] = [8, 512, 64] div(@0, @1) where @0 = e[i0, i1, i2], @1 = s[i0, i1, 0]
  output y
  output o
})";

TEST(GpuRun, PlansWithinWhatTheDeviceHas) {
    const Program p = parse_program(kLarge);
    for (const int capability : {86, 90, 120}) {
        CompileOptions o;
        o.gpu = described(capability);
        o.precision = Precision::F16;
        const auto model = compile_program(p, o);
        EXPECT_NO_THROW(check_fits(*model, *o.gpu)) << capability;
        int64_t most = 0;
        for (const cuda::KernelText& k : model->gpu_kernels()) most = std::max(most, k.shared_bytes);
        EXPECT_LE(most, o.gpu->block_shared_bytes) << capability;
        EXPECT_EQ(most > 99 << 10, capability == 90) << "the limit of graphics cards matters here";
        EXPECT_EQ(model->dump("tiles").find(" group [") != std::string::npos, capability == 90) << capability;
        EXPECT_EQ(model->dump("cuda").find("copy_box") != std::string::npos, capability == 90) << capability;
    }
}

TEST(GpuRun, RunsALayerInLockstepAtEveryPrecision) {
    const Program p = parse_program(kLayer);
    std::vector<Tensor> inputs;
    for (const ValueId v : p.inputs) {
        Tensor t(DType::F32, evaluate(p.values[v].shape, {}));
        for (int64_t i = 0; i < t.count(); ++i)
            t.set(i, static_cast<double>((i * 7919 + static_cast<int64_t>(inputs.size())) % 41 - 20) / 80);
        inputs.push_back(t);
    }
    const std::vector<Tensor> expected = interpret(p, inputs);
    for (const auto& [precision, error] :
         {std::pair(Precision::F32, 1e-5), std::pair(Precision::TF32, 2e-3), std::pair(Precision::BF16, 2e-2)}) {
        CompileOptions o;
        o.gpu = a100();
        o.precision = precision;
        const auto model = compile_program(p, o);
        const double difference = largest_difference(expected, run_in_lockstep(*model, inputs));
        EXPECT_LT(difference, error) << to_string(precision);
        if (precision != Precision::F32) {
            EXPECT_GT(difference, 1e-6) << "nothing was rounded";
            EXPECT_THAT(model->dump("cuda"), testing::HasSubstr(fmt::format("tw::multiply_{}", to_string(precision))));
        }
    }
}

TEST(GpuRun, RunsSplitReductionsInLockstep) {
    // Few results of long sums: blocks have parts of a sum, and the last block of a tile adds them.
    const Program p = parse_program(R"(program long {
  input a: f32[4, 16384]
  input b: f32[16384, 16]
  input bias: f32[16]
  c: f32[4, 16] = [4, 16] sum(i2 < 16384) mul(@0, @1) then max(add(acc, @2), 0.0) where @0 = a[i0, i2], @1 = b[i2, i1], @2 = bias[i1]
  output c
})");
    const std::vector<Tensor> inputs = random_inputs(p, 3);
    for (const GpuTarget& target : {a100(), h200()}) {
        CompileOptions o;
        o.gpu = target;
        o.precision = Precision::F32;
        const auto model = compile_program(p, o);
        EXPECT_EQ(model->kernels().size(), size_t{1});
        EXPECT_THAT(model->dump("tiles"), testing::HasSubstr("parallel r2 by"));
        EXPECT_LT(largest_difference(interpret(p, inputs), run_in_lockstep(*model, inputs)), 1e-4);
    }
}

}  // namespace
}  // namespace tilewright
