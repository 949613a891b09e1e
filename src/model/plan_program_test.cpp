// Plans whose kernels run elsewhere.

#include "model/plan_program.h"
#include "compile/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/kernel.h"
#include "base/error.h"
#include "model/session.h"
#include "program/random_program.h"

namespace tilewright {
namespace {

CompileOptions for_gpu(Precision precision = Precision::F32) {
    CompileOptions o;
    o.gpu = a100();
    o.precision = precision;
    return o;
}

/// The outputs of the compiled model, its kernels run by the tile interpreter; `runs` counts them.
std::vector<Tensor> run_by_tiles(const CompiledModel& m, const std::vector<Tensor>& inputs, int* runs = nullptr) {
    const auto run = [&](const CallSite& at, const std::vector<Tensor>& operands, const Bindings& names) {
        if (runs != nullptr) ++*runs;
        return interpret(m.kernels()[at.call->kernel], operands, names);
    };
    return interpret(program_of(m.plan(), m.kernels(), run), inputs);
}

TEST(PlanProgram, CallsKernelsInPlaceOfTheirPrimitives) {
    const Program p = parse_program(R"(program layer {
  input x: f32[$n, 24]
  input w: f32[24, 16]
  c: f32[$n, 16] = [$n, 16] sum(i2 < 24) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  m: f32[$n, 1] = [$n, 1] max(i2 < 16) @0 where @0 = c[i0, i2]
  e: f32[$n, 16] = [$n, 16] exp(sub(@0, @1)) where @0 = c[i0, i1], @1 = m[i0, 0]
  s: f32[$n, 1] = [$n, 1] sum(i2 < 16) @0 where @0 = e[i0, i2]
  y: f32[$n, 16] = [$n, 16] div(@0, @1) where @0 = e[i0, i1], @1 = s[i0, 0]
  output y
})");
    for (const int64_t n : {1, 7}) {
        Tensor x(DType::F32, {n, 24}), w(DType::F32, {24, 16});
        for (int64_t i = 0; i < x.count(); ++i) x.set(i, static_cast<double>(i % 5) / 4);
        for (int64_t i = 0; i < w.count(); ++i) w.set(i, static_cast<double>(i % 7) / 8);
        const auto model = compile_program(p, for_gpu());
        int runs = 0;
        EXPECT_LT(largest_difference(interpret(p, {x, w}), run_by_tiles(*model, {x, w}, &runs)), 1e-5);
        EXPECT_EQ(runs, model->stats().steps);
        EXPECT_EQ(model->gpu_kernels().size(), model->kernels().size());
    }
}

TEST(PlanProgram, GivesKernelsTheirTensorsAsTheySeeThem) {
    for (uint64_t seed = 0; seed < 20; ++seed) {  // merged axes, constants, several outputs
        const Program p = random_program(seed, 4);
        const std::vector<Tensor> inputs = random_inputs(p, seed);
        EXPECT_LT(largest_difference(interpret(p, inputs), run_by_tiles(*compile_program(p, for_gpu()), inputs)), 1e-3)
            << "seed " << seed << "\n"
            << print(p);
    }
}

TEST(PlanProgram, OfAModelForAGpuHasNoSession) {
    const Program p = random_program(1, 2);
    const auto model = compile_program(p, for_gpu());
    EXPECT_THROW(Session session(model), RuntimeError);
    EXPECT_THAT(model->dump("cuda"), testing::HasSubstr("TW_KERNEL(kernel_0"));
    EXPECT_THROW(model->dump("llvm"), ModelError);
    EXPECT_THROW(compile_program(p, {})->dump("cuda"), ModelError);
}

}  // namespace
}  // namespace tilewright
