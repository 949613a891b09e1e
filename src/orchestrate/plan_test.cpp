// A plan's kernels, run one after the other, compute its program; equal kernels are one.

#include "orchestrate/plan.h"

#include <gtest/gtest.h>

#include <map>

#include "orchestrate/program_test.h"

namespace tilewright {
namespace {

using namespace test;

TileProgram scheduled(const std::string& text) { return default_schedule(parse_program(text), ScheduleTarget()); }

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
    ScheduleTarget narrow;
    narrow.lanes = 4;
    KernelSet set;
    EXPECT_EQ(set.add(default_schedule(stages, ScheduleTarget())), 0u);
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
    const Plan plan = orchestrate(p, kernels, {});
    ASSERT_EQ(plan.steps.size(), 2u);
    EXPECT_EQ(kernels.kernels().size(), 1u);
    const auto& first = std::get<KernelCall>(plan.steps[0].what);
    const auto& second = std::get<KernelCall>(plan.steps[1].what);
    EXPECT_EQ(first.kernel, second.kernel);
    EXPECT_EQ(first.tensors.back(), second.tensors.front());
    EXPECT_NE(first.tensors[1], second.tensors[1]);
}

/// The outputs of the program, from its plan's kernels as the tile interpreter runs them.
std::vector<Tensor> run_by_tiles(const Plan& plan, const KernelSet& kernels, const std::vector<Tensor>& inputs) {
    const Program& p = plan.program;
    std::map<ValueId, Tensor> values(p.constants.begin(), p.constants.end());
    Bindings bindings;
    for (size_t i = 0; i < inputs.size(); ++i) {
        bind_shape(bindings, p.values[p.inputs[i]].shape, inputs[i].shape(), p.values[p.inputs[i]].name);
        values[p.inputs[i]] = inputs[i];
    }
    for (const Step& step : plan.steps) {
        const auto& call = std::get<KernelCall>(step.what);
        const TileProgram& kernel = kernels.kernels()[call.kernel];
        std::vector<Tensor> operands;
        for (const ValueId v : kernel.stages.inputs)  // kernels may see tensors flattened
            operands.push_back(
                values.at(call.tensors[operands.size()]).reshaped(evaluate(kernel.stages.values[v].shape, bindings)));
        const std::vector<Tensor> results = interpret(kernel, operands, bindings);
        for (size_t k = 0; k < results.size(); ++k) {
            const ValueId v = call.tensors[operands.size() + k];
            values[v] = results[k].reshaped(evaluate(p.values[v].shape, bindings));
        }
    }
    std::vector<Tensor> outputs;
    for (const ValueId v : p.outputs) outputs.push_back(values.at(v));
    return outputs;
}

TEST(Orchestrate, plans_compute_their_programs) {
    for (uint64_t seed = 0; seed < 400; ++seed) {
        const Program program = random_program(seed, 2 + static_cast<int>(seed % 8));
        OrchestrateOptions options;
        options.target.lanes = seed % 3 == 0 ? 16 : 8;
        options.target.threads = 1 + static_cast<int>(seed % 4);
        options.fuse = seed % 5 != 0;
        options.layouts = seed % 7 != 0;
        KernelSet kernels;
        const Plan plan = orchestrate(program, kernels, options);
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
