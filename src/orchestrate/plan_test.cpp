// A plan's kernels compute its program when run in sequence; equal kernels are shared.

#include "orchestrate/plan.h"
#include "compile/pipeline.h"
#include "cost/target_with_test.h"

#include <gtest/gtest.h>

#include "orchestrate/options.h"
#include "orchestrate/program_test.h"
#include "orchestrate/run_plan_test.h"

namespace tilewright {
namespace {

using namespace test;

TileProgram scheduled(const std::string& text) { return default_schedule(parse_program(text), test::target_with()); }

TEST(KernelSet, holds_kernels_that_differ_in_their_name_alone_once) {
    const std::string body = R"({
  input x: f32[6, 40]
  y: f32[6, 40] = [6, 40] exp(@0) where @0 = x[i0, i1]
  output y
})";
    KernelSet set;
    EXPECT_EQ(set.add(scheduled("program a " + body)), 0u);
    EXPECT_EQ(set.add(scheduled("program b " + body)), 0u);
    std::string other = body;
    other.replace(other.find("exp"), 3, "neg");
    EXPECT_EQ(set.add(scheduled("program a " + other)), 1u);
    EXPECT_EQ(set.kernels().size(), 2u);
}

TEST(KernelSet, tells_schedules_apart) {
    const Program stages = parse_program(R"(program a {
  input x: f32[6, 40]
  y: f32[6, 40] = [6, 40] exp(@0) where @0 = x[i0, i1]
  output y
})");
    const Target narrow = test::target_with({.lanes = 4});
    KernelSet set;
    EXPECT_EQ(set.add(default_schedule(stages, test::target_with())), 0u);
    EXPECT_EQ(set.add(default_schedule(stages, narrow)), 1u);
}

TEST(Orchestrate, layers_of_one_shape_share_a_kernel_and_not_their_weights) {
    const Program p = with_weights(R"(program layers {
  input x: f32[12, 64]
  input w0: f32[64, 64]
  input w1: f32[64, 64]
  a: f32[12, 64] = [12, 64] sum(i2 < 64) mul(@0, @1) then max(acc, 0.0) where @0 = x[i0, i2], @1 = w0[i2, i1]
  b: f32[12, 64] = [12, 64] sum(i2 < 64) mul(@0, @1) then max(acc, 0.0) where @0 = a[i0, i2], @1 = w1[i2, i1]
  output b
})");
    KernelSet kernels;
    const Plan plan = plan_program(p, kernels, {});
    ASSERT_EQ(plan.steps.size(), 2u);
    EXPECT_EQ(kernels.kernels().size(), 1u);
    const auto& first = std::get<KernelCall>(plan.steps[0].what);
    const auto& second = std::get<KernelCall>(plan.steps[1].what);
    EXPECT_EQ(first.kernel, second.kernel);
    EXPECT_EQ(first.tensors.back(), second.tensors.front());
    EXPECT_NE(first.tensors[1], second.tensors[1]);
}

TEST(Orchestrate, plans_compute_their_programs) {
    for (uint64_t seed = 0; seed < 400; ++seed) {
        const Program program = random_program(seed, 2 + static_cast<int>(seed % 8));
        OrchestrateOptions options;
        options.scheduling.target =
            test::target_with({.lanes = seed % 3 == 0 ? 16 : 8, .workers = 1 + static_cast<int>(seed % 4)});
        options.fuse = seed % 5 != 0;
        options.layouts = seed % 7 != 0;
        KernelSet kernels;
        const Plan plan = plan_program(program, kernels, options);
        for (const TileProgram& kernel : kernels.kernels())
            ASSERT_EQ(verify(kernel), std::vector<std::string>()) << "seed " << seed << "\n" << print(kernel);
        const std::vector<Tensor> inputs = random_inputs(program, seed);
        ASSERT_LE(largest_difference(interpret(program, inputs), run_by_tiles(plan, kernels, inputs)), 1e-5)
            << "seed " << seed << "\n"
            << plan.print();
    }
}

}  // namespace
}  // namespace tilewright
