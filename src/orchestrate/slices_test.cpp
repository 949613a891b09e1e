// Kernels with intermediate tensors larger than a cache run slice by slice.

#include "orchestrate/slices.h"
#include "compile/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orchestrate/options.h"
#include "orchestrate/program_test.h"
#include "orchestrate/run_plan_test.h"
#include "orchestrate/scheduling_test.h"

namespace tilewright {
namespace {

using namespace test;

/// 32 channels to 24: tiles of 128 KiB and products of 96 KiB, with an L2 of 32 KiB.
std::string convolution(const std::string& more = "", const std::string& outputs = "y", int64_t results = 24) {
    TiledConvolution c;
    c.results = results;
    c.more = more;
    c.outputs = outputs;
    return c.text();
}

OrchestrateOptions small_cache(int threads = 1) {
    OrchestrateOptions o = orchestration(Orchestrator::Greedy, 8, threads);
    o.scheduling.target.caches.at(1).bytes = 32 << 10;
    return o;
}

struct Planned {
    Plan plan;
    KernelSet kernels;
    Planned(const std::string& text, const OrchestrateOptions& options) {
        const Program p = with_weights(text);
        plan = plan_program(p, kernels, options);
        const std::vector<Tensor> inputs = random_inputs(p, 3);
        EXPECT_LE(largest_difference(interpret(p, inputs), run_by_tiles(plan, kernels, inputs)), 1e-4) << plan.print();
    }
    const TileProgram& kernel(size_t step) const {
        return kernels.kernels().at(std::get<KernelCall>(plan.steps.at(step).what).kernel);
    }
};

TEST(Slices, of_tiles_products_and_what_becomes_of_them_are_rows_of_tiles) {
    const Planned p(convolution(), small_cache());
    ASSERT_EQ(p.plan.slices.size(), 1u) << p.plan.print();
    const Slices& s = p.plan.slices[0];
    EXPECT_EQ(s.count, 3u);
    EXPECT_EQ(s.slices, 8);
    std::vector<std::string> kept;
    for (const ValueId v : s.kept) kept.push_back(shape_of(p.plan.program, p.plan.program.values[v].name));
    EXPECT_THAT(kept, testing::ElementsAre("[8, 4, 2, 16, 32]", "[8, 4, 2, 16, 24]"));
    const std::vector<size_t> near = {1, 2, 1};  // per kernel: operands and results with a cache hint
    for (size_t k = 0; k < s.count; ++k) {
        const TileProgram& kernel = p.kernel(s.first + k);
        ASSERT_EQ(kernel.body.size(), 1u);
        const auto* loop = std::get_if<TileLoop>(&kernel.body[0].kind);
        ASSERT_NE(loop, nullptr) << print(kernel);
        EXPECT_TRUE(loop->parallel && loop->step == 1) << print(kernel);
        EXPECT_TRUE(kernel.axes[loop->axis].extent.is_constant(8)) << print(kernel);
        EXPECT_EQ(kernel.near.size(), near[k]) << print(kernel);
    }
}

TEST(Slices, are_cut_at_the_same_tiles_where_products_have_more_channels) {
    const Planned p(convolution("", "y", 64), small_cache());
    ASSERT_EQ(p.plan.slices.size(), 1u) << p.plan.print();
    EXPECT_EQ(p.plan.slices[0].slices, 16);
    EXPECT_EQ(shape_of(p.plan.program, "v"), "[16, 4, 16, 32]");
    EXPECT_EQ(shape_of(p.plan.program, "m"), "[16, 4, 16, 64]");
}

TEST(Slices, are_not_of_what_a_cache_holds) {
    OrchestrateOptions roomy = small_cache();
    roomy.scheduling.target.caches.at(1).bytes = 1 << 20;
    EXPECT_TRUE(Planned(convolution(), roomy).plan.slices.empty());
}

TEST(Slices, are_not_of_what_others_read_too) {
    const Planned shown(convolution("", "y, v"), small_cache());
    for (const Slices& s : shown.plan.slices)
        for (const ValueId v : s.kept) EXPECT_NE(shown.plan.program.values[v].name, "v") << shown.plan.print();
    const Planned p(convolution(R"(  s: f32[24] = [24] max(i1 < 4, i2 < 16, i3 < 16) @0 where @0 = m[i1, i0, i2, i3]
)",
                                "y, s"),
                    small_cache());
    for (const Slices& s : p.plan.slices)
        for (const ValueId v : s.kept) EXPECT_NE(p.plan.program.values[v].name, "m") << p.plan.print();
}

TEST(Slices, are_some_for_each_thread) {
    EXPECT_EQ(Planned(convolution(), small_cache(2)).plan.slices.size(), 1u);
    EXPECT_TRUE(Planned(convolution(), small_cache(4)).plan.slices.empty()) << "8 slices for 4 threads";
}

}  // namespace
}  // namespace tilewright
