#include "orchestrate/dynamic/ways.h"

#include <gmock/gmock.h>

#include "compile/pipeline.h"
#include "orchestrate/run_plan_test.h"
#include "program/random_program.h"
#include "program/transform/substitute.h"

namespace tilewright::dynamic {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A softmax over $n columns, and a product that all plans compute alike.
Program softmax_and_product() {
    return parse_program(R"(program p {
  input x: f32[6, $n]
  input a: f32[$n, 8]
  input b: f32[8, 16]
  m: f32[6] = [6] max(i1 < $n) @0 where @0 = x[i0, i1]
  e: f32[6, $n] = [6, $n] exp(sub(@0, @1)) where @0 = x[i0, i1], @1 = m[i0]
  t: f32[6] = [6] sum(i1 < $n) @0 where @0 = e[i0, i1]
  y: f32[6, $n] = [6, $n] div(@0, @1) where @0 = e[i0, i1], @1 = t[i0]
  c: f32[$n, 16] = [$n, 16] sum(i2 < 8) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  output y, c
})");
}

/// The plan of the program, whose rows are bounded, and therefore fused, where `bound` is not 0.
PlannedWay planned(Program p, int64_t bound, bool fuse = true) {
    if (bound > 0) p.at_most[*symbol("n").as_var()] = bound;
    OrchestrateOptions options;
    options.skip = {"sample_sizes"};
    options.fuse = fuse;
    KernelSet kernels;
    PlannedWay way;
    way.plan = plan_program(std::move(p), kernels, options);
    for (const Step& step : way.plan.steps) {
        const auto& call = std::get<KernelCall>(step.what);
        way.programs.emplace_back(kernels.kernels()[call.kernel]);
        way.weights.emplace_back();
    }
    return way;
}

/// One kernel for the whole softmax is cheaper below 100 columns.
MergeOptions options() {
    MergeOptions o;
    const Var n = *symbol("n").as_var();
    for (const int64_t size : {1, 16, 256}) o.samples.push_back({{{n, size}}, 1});
    o.seconds = [n](const TileProgram& kernel, const Bindings& sizes) {
        const bool small = sizes.at(n)<100, fused = kernel.stages.primitives.size()> 1;
        return fused ? (small ? 1.0 : 100.0) : (small ? 10.0 : 1.0);
    };
    return o;
}

PlannedWay merged(std::vector<RegionReport>* report = nullptr) {
    std::vector<PlannedWay> ways;
    ways.push_back(planned(softmax_and_product(), 0));
    ways.push_back(planned(softmax_and_product(), 64));
    const Program outlined = ways[0].plan.program;
    return merge_ways(outlined, std::move(ways), options(), report);
}

TEST(MergeWays, MakesARegionOfWhatThePlansComputeDifferently) {
    std::vector<RegionReport> report;
    const PlannedWay m = merged(&report);
    ASSERT_EQ(m.plan.regions.size(), 1u) << m.plan.print();
    const Dispatch& d = m.plan.regions[0].dispatch;
    EXPECT_THAT(d.faults(), IsEmpty());
    EXPECT_EQ(d.ways(), 2u);
    EXPECT_THAT(d.print(), HasSubstr("only if -$n + 64 >= 0"));
    size_t always = 0;
    for (const Step& step : m.plan.steps) always += std::get<KernelCall>(step.what).way ? 0 : 1;
    EXPECT_EQ(always, 1u) << "the product is no part of the region\n" << m.plan.print();
    ASSERT_EQ(report.size(), 1u);
    EXPECT_EQ(report[0].candidates, 2u);
}

TEST(MergeWays, TheDispatchTakesTheCheaperWayThatIsLegal) {
    const PlannedWay m = merged();
    const auto kernels_at = [&](int64_t n) {
        size_t count = 0;
        for (const Step& step : m.plan.steps)
            count += test::runs_at(m.plan, std::get<KernelCall>(step.what), {{*symbol("n").as_var(), n}}) ? 1 : 0;
        return count;
    };
    const size_t apart = kernels_at(1000);
    EXPECT_GT(apart, 2u);
    EXPECT_EQ(kernels_at(1), 2u);
    EXPECT_EQ(kernels_at(64), 2u);
    EXPECT_EQ(kernels_at(65), apart) << "more columns than the bound";
}

TEST(MergeWays, EveryWayComputesTheProgram) {
    PlannedWay m = merged();
    KernelSet kernels;
    for (size_t s = 0; s < m.plan.steps.size(); ++s)
        std::get<KernelCall>(m.plan.steps[s].what).kernel = kernels.add(*m.programs[s]);
    const Program p = softmax_and_product();
    for (const int64_t n : {1, 5, 64, 65, 130}) {
        const Program sized = substitute_names(p, {{*symbol("n").as_var(), Expr(n)}});
        const std::vector<Tensor> inputs = random_inputs(sized, 7);
        EXPECT_LE(largest_difference(interpret(p, inputs), test::run_by_tiles(m.plan, kernels, inputs)), 1e-5) << n;
    }
}

/// A sum whose terms one plan stores, and of which another makes parts without storing the terms: a GEMM chain whose
/// sum is split, in small.
std::vector<PlannedWay> whole_and_split() {
    const Program whole = parse_program(R"(program p {
  input x: f32[$n, 8]
  s: f32[$n, 8] = [$n, 8] exp(@0) where @0 = x[i0, i1]
  y: f32[$n] = [$n] sum(i1 < 8) @0 where @0 = s[i0, i1]
  output y
})");
    const Program parts = parse_program(R"(program p {
  input x: f32[$n, 8]
  parts: f32[2, $n] = [2, $n] sum(i2 < 4) exp(@0) where @0 = x[i1, 4*i0 + i2]
  y: f32[$n] = [$n] sum(i1 < 2) @0 where @0 = parts[i1, i0]
  output y
})");
    Program split = whole;
    split.primitives = {};
    const ValueId added = split.values.push_back(parts.values[ValueId(1)]);
    const std::map<ValueId, ValueId> now{{ValueId(0), ValueId(0)}, {ValueId(1), added}, {ValueId(2), whole.outputs[0]}};
    for (Primitive p : parts.primitives) {
        for (Access& a : p.expr()->accesses) a.value = now.at(a.value);
        for (ValueId& v : p.outputs) v = now.at(v);
        split.primitives.push_back(std::move(p));
    }
    std::vector<PlannedWay> ways;
    ways.push_back(planned(whole, 0, false));
    ways.push_back(planned(split, 0, false));
    return ways;
}

TEST(MergeWays, AWayThatDoesNotStoreAValueIsOneWithItsReaders) {
    std::vector<PlannedWay> ways = whole_and_split();
    const Program whole = ways[0].plan.program;
    MergeOptions o = options();
    o.seconds = [](const TileProgram& kernel, const Bindings& sizes) {
        const bool halves = kernel.stages.values[kernel.stages.outputs[0]].shape[0].is_constant(2);
        return !halves ? 1.0 : sizes.at(*symbol("n").as_var()) < 100 ? 0.1 : 100.0;
    };
    PlannedWay m = merge_ways(whole, std::move(ways), o, nullptr);
    ASSERT_EQ(m.plan.regions.size(), 1u) << "no way of a region of its own that makes nothing of the terms\n"
                                         << m.plan.print();
    KernelSet kernels;
    for (size_t s = 0; s < m.plan.steps.size(); ++s)
        std::get<KernelCall>(m.plan.steps[s].what).kernel = kernels.add(*m.programs[s]);
    for (const int64_t n : {1, 5, 130}) {
        const Program sized = substitute_names(whole, {{*symbol("n").as_var(), Expr(n)}});
        const std::vector<Tensor> inputs = random_inputs(sized, 7);
        EXPECT_LE(largest_difference(interpret(whole, inputs), test::run_by_tiles(m.plan, kernels, inputs)), 1e-5) << n;
    }
}

TEST(MergeWays, PlansThatAgreeHaveNoRegions) {
    std::vector<PlannedWay> ways;
    for (int k = 0; k < 3; ++k) ways.push_back(planned(softmax_and_product(), 0));
    const Program outlined = ways[0].plan.program;
    EXPECT_THAT(merge_ways(outlined, std::move(ways), options()).plan.regions, IsEmpty());
}

TEST(Bounds, ThatNoBufferNeedsAreDropped) {
    PlannedWay way = planned(softmax_and_product(), 64);
    size_t bounded = 0;
    for (auto& program : way.programs) {
        drop_unneeded_bounds(*program);
        bounded += program->stages.at_most.empty() ? 0 : 1;
    }
    EXPECT_EQ(bounded, 1u) << "rows of the softmax have buffers, the product has none";
}

}  // namespace
}  // namespace tilewright::dynamic
