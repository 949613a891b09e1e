// Kernels with few results and long sums are split where threads would be idle, and their plans compute their programs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compile/pipeline.h"
#include "cost/gpu_estimate.h"
#include "orchestrate/fuse.h"
#include "orchestrate/fuse_rows.h"
#include "orchestrate/gemm_chains.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/options.h"
#include "orchestrate/program_test.h"
#include "orchestrate/run_plan_test.h"
#include "orchestrate/schedules.h"
#include "orchestrate/scheduling_test.h"
#include "orchestrate/split_k.h"
#include "schedule/chain/chains_test.h"
#include "schedule/kernel_costs_test.h"
#include "tile/walk.h"

namespace tilewright {
namespace {

using namespace test;

Grouped split(const Program& p, const Scheduling& how) {
    Schedules schedules(how);
    Grouped g;
    g.program = fuse_greedily(p);
    g.groups = fuse_gemm_chains(g.program, fuse_rows(g.program), schedules);
    split_k(g, schedules);
    return g;
}

/// The results of each group's primitives.
std::vector<std::string> names(const Grouped& g) {
    std::vector<std::string> out;
    for (const KernelGroup& group : g.groups) {
        out.emplace_back(group.chain ? "chain:" : "");
        for (const PrimitiveId id : group.primitives)
            out.back() += (out.back().empty() ? "" : " ") + g.program.values[g.program.primitives[id].outputs[0]].name;
    }
    return out;
}

Program product(int64_t m, int64_t n, int64_t k) {
    return parse_program(fmt::format(R"(program t {{
  input a: f32[{0}, {2}]
  input b: f32[{2}, {1}]
  input bias: f32[{1}]
  c: f32[{0}, {1}] = [{0}, {1}] sum(i2 < {2}) mul(@0, @1) then max(add(acc, @2), 0.0) where @0 = a[i0, i2], @1 = b[i2, i1], @2 = bias[i1]
  output c
}})",
                                     m, n, k));
}

/// Expects that the split program and its plan compute `p`.
void computes(const Program& p, const Scheduling& how) {
    const Grouped g = split(p, how);
    ASSERT_EQ(verify(g.program), std::vector<std::string>()) << print(g.program);
    expect_same(p, g.program);
    OrchestrateOptions options;
    options.scheduling = how;
    KernelSet kernels;
    const Plan plan = plan_program(p, kernels, options);
    const std::vector<Tensor> inputs = random_inputs(p, 4);
    ASSERT_LE(largest_difference(interpret(p, inputs), run_by_tiles(plan, kernels, inputs)), 1e-5) << plan.print();
}

TEST(SplitK, a_long_sum_of_few_results_is_two_kernels_where_threads_are_idle) {
    const Program p = product(4, 16, 65536);
    EXPECT_EQ(names(split(p, avx2_scheduling(SchedulerKind::Mcfuser, 1))), std::vector<std::string>{"c"});
    const Grouped g = split(p, avx2_scheduling(SchedulerKind::Mcfuser, 4));
    ASSERT_EQ(g.groups.size(), 2u) << testing::PrintToString(names(g));
    EXPECT_EQ(names(g)[1], "c");
    EXPECT_EQ(shape_of(g.program, g.program.values[g.program.primitives[PrimitiveId(0)].outputs[0]].name),
              "[4, 4, 16]");
    computes(product(4, 16, 4096), avx2_scheduling(SchedulerKind::Mcfuser, 4));
}

Scheduling gpu_scheduling(Precision precision = Precision::F32) {
    Scheduling how;
    how.kind = SchedulerKind::Auto;
    how.target.gpu = h200();
    how.precision = precision;
    return how;
}

TEST(SplitK, a_gpu_gets_blocks_for_its_multiprocessors) {
    // A product is one kernel, whose blocks have parts of its sums.
    for (const Program& p : {product(4, 16, 65536), product(64, 64, 16384)}) {
        const Grouped g = split(p, gpu_scheduling(Precision::TF32));
        ASSERT_EQ(g.groups.size(), size_t{1}) << print(p);
        Schedules schedules(gpu_scheduling(Precision::TF32));
        const TileProgram t = schedules.kernel(extract(g.program, g.groups[0])).program;
        EXPECT_TRUE(walk(t).split) << print(t);
        EXPECT_GE(gpu_estimate(t, h200()).blocks, 16);
    }
}

TEST(SplitK, a_gpu_gets_two_kernels_for_the_attention_of_a_decoder) {
    // Two heads of one query each: two blocks, which process 16,384 keys sequentially.
    const Program p = chain::attention(2, 1, 16384, 64, 64);
    const Grouped g = split(p, gpu_scheduling(Precision::TF32));
    EXPECT_GT(g.groups.size(), size_t{1}) << print(p);
    ASSERT_EQ(verify(g.program), std::vector<std::string>()) << print(g.program);
    // The first kernel has more blocks than the unsplit one.
    Schedules schedules(gpu_scheduling(Precision::TF32));
    const auto blocks = [&](const Program& program, const KernelGroup& group) {
        const KernelBody body = extract(program, group);
        const TileProgram t = group.chain ? schedules.chain(body).value().program : schedules.kernel(body).program;
        return gpu_estimate(t, h200()).blocks;
    };
    Grouped whole;
    whole.program = fuse_greedily(p);
    whole.groups = fuse_gemm_chains(whole.program, fuse_rows(whole.program), schedules);
    EXPECT_GT(blocks(g.program, g.groups[0]), 2 * blocks(whole.program, whole.groups.back()));
}

TEST(SplitK, a_gpu_keeps_kernels_with_a_block_for_every_multiprocessor) {
    for (const Program& p : {product(1024, 1024, 4096), product(4, 16, 64), chain::attention(64, 512, 512, 64, 64)}) {
        Schedules schedules(gpu_scheduling());
        Grouped whole;
        whole.program = fuse_greedily(p);
        whole.groups = fuse_gemm_chains(whole.program, fuse_rows(whole.program), schedules);
        EXPECT_EQ(names(split(p, gpu_scheduling())), names(whole)) << print(p);
    }
    for (const Program& p : {product(4, 16, 16384), chain::attention(1, 2, 4096, 16, 16)})
        computes(p, gpu_scheduling());
}

TEST(SplitK, many_results_or_short_sums_stay_one_kernel) {
    for (const Program& p : {product(512, 512, 512), product(4, 16, 64)})
        EXPECT_EQ(split(p, avx2_scheduling(SchedulerKind::Mcfuser, 4)).groups.size(), 1u) << print(p);
}

/// A machine on which merging parts (which touches little data) takes no time, and neither do five stages, which are an
/// attention without its last quotient. All six are faster than several kernels.
Scheduling where_parts_are_free(int threads) {
    Scheduling how = avx2_scheduling(SchedulerKind::Mcfuser, threads);
    test::measure_schedules_by(how, [](const std::vector<TileProgram>& all) {
        std::vector<double> seconds;
        for (const TileProgram& t : all) {
            double elements = 0;
            for (const Value& v : t.stages.values) {
                double n = 1;
                for (const Expr& d : v.shape) n *= static_cast<double>(d.constant());
                elements += n;
            }
            const size_t stages = t.stages.primitives.size();
            seconds.push_back(elements < 2e4 || stages == 5 ? 1e-9 : stages == 6 ? 1 : 10);
        }
        return seconds;
    });
    return how;
}

TEST(SplitK, plans_compute_their_programs) {
    for (const Program& p : {product(3, 5, 600), chain::attention(1, 2, 600, 8, 8, "add(mul(acc, 0.5), @2)"),
                             chain::grouped_attention(4, 4, 1, 300, 4, 8), chain::norm_product("layer", "2", 5, 600)})
        computes(p, where_parts_are_free(3));
}

TEST(SplitK, other_groups_keep_their_places) {
    const Program p = with_weights(R"(program t {
  input x: f32[4, 65536]
  input w: f32[65536, 16]
  a: f32[4, 65536] = [4, 65536] tanh(@0) where @0 = x[i0, i1]
  s: f32[4, 1] = [4] -> [i0, 0] sum(i1 < 65536) mul(@0, @0) where @0 = a[i0, i1]
  c: f32[4, 16] = [4, 16] sum(i2 < 65536) mul(@0, @1) where @0 = a[i0, i2], @1 = w[i2, i1]
  d: f32[4, 16] = [4, 16] sub(@0, @1) where @0 = c[i0, i1], @1 = s[i0, 0]
  output d
  output a
})");
    const Grouped g = split(p, avx2_scheduling(SchedulerKind::Mcfuser, 4));
    ASSERT_EQ(verify(g.program), std::vector<std::string>()) << print(g.program);
    EXPECT_GT(g.groups.size(), 2u) << testing::PrintToString(names(g));
    std::set<ValueId> there(g.program.inputs.begin(), g.program.inputs.end());
    for (const auto& [v, t] : g.program.constants) there.insert(v);
    for (const KernelGroup& group : g.groups) {
        for (const PrimitiveId id : group.primitives) there.insert(g.program.primitives[id].outputs[0]);
        for (const PrimitiveId id : group.primitives)
            for (const ValueId v : g.program.primitives[id].inputs())
                EXPECT_EQ(there.count(v), 1u) << g.program.values[v].name << " is not there yet";
    }
}

}  // namespace
}  // namespace tilewright
