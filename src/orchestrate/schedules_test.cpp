// Each schedule of a model is made once, and plans of every scheduler compute their programs.

#include "orchestrate/schedules.h"
#include "compile/pipeline.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/build_id.h"
#include "cost/given_test.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/options.h"
#include "orchestrate/program_test.h"
#include "orchestrate/run_plan_test.h"
#include "orchestrate/scheduling_test.h"
#include "schedule/kernel_costs_test.h"

namespace tilewright {
namespace {

using namespace test;

constexpr SchedulerKind kKinds[] = {SchedulerKind::Default, SchedulerKind::Tree,   SchedulerKind::Gensor,
                                    SchedulerKind::Mcfuser, SchedulerKind::Search, SchedulerKind::Auto};

KernelBody body_of(const std::string& name) {
    const Program p = parse_program("program " + name + R"( {
  input a: f32[64, 64]
  input b: f32[64, 64]
  c: f32[64, 64] = [64, 64] sum(i2 < 64) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  output c
})");
    return extract(p, {{PrimitiveId(0)}, {{}}});
}

TEST(Schedules, kernels_that_differ_in_their_name_alone_are_scheduled_once) {
    Schedules schedules(avx2_scheduling(SchedulerKind::Gensor));
    const Schedules::Scheduled& first = schedules.kernel(body_of("first"));
    KernelBody second = body_of("second");
    second.stages.name = "another";
    EXPECT_EQ(&schedules.kernel(second), &first);
    EXPECT_GT(schedules.spent_ms(), 0);
}

/// A temporary folder, removed at the end.
struct Folder {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / fmt::format("tilewright-schedules-{}", ::getpid());
    Folder() { std::filesystem::remove_all(path); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { std::filesystem::remove_all(path); }
    /// Kept schedules, without the cache's key.
    size_t files() const {
        if (!std::filesystem::exists(path)) return 0;
        size_t n = 0;
        for (const auto& file : std::filesystem::directory_iterator(path)) n += file.path().extension() == ".code";
        return n;
    }
};

/// Two products that a search of some milliseconds merges into a chain.
KernelBody chain_body() {
    const Program p = parse_program(R"(program chain {
  input a: f32[256, 64]
  input b: f32[64, 256]
  input d: f32[256, 64]
  c: f32[256, 256] = [256, 256] sum(i2 < 64) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  e: f32[256, 64] = [256, 64] sum(i2 < 256) mul(@0, @1) where @0 = c[i0, i2], @1 = d[i2, i1]
  output e
})");
    return extract(p, {{PrimitiveId(0), PrimitiveId(1)}, {{}, {}}});
}

TEST(Schedules, what_took_long_to_find_is_found_again_by_the_next_compilation) {
    ASSERT_FALSE(build_id().empty());
    const Folder folder;
    const auto kept = std::make_shared<CodeCache>(folder.path.string());
    Schedules first(avx2_scheduling(SchedulerKind::Auto), kept);
    const auto made = first.chain(chain_body());
    ASSERT_TRUE(made.has_value());
    EXPECT_EQ(folder.files(), 1u);
    Schedules second(avx2_scheduling(SchedulerKind::Auto), kept);
    const auto found = second.chain(chain_body());
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(print(found->program), print(made->program));
    EXPECT_EQ(found->seconds, made->seconds);
    EXPECT_LT(second.spent_ms(), first.spent_ms());
    EXPECT_EQ(folder.files(), 1u) << "it was looked for under another name";
}

TEST(Schedules, another_machine_s_choices_are_not_found) {
    const Folder folder;
    const auto kept = std::make_shared<CodeCache>(folder.path.string());
    Schedules(avx2_scheduling(SchedulerKind::Auto), kept).chain(chain_body());
    Scheduling faster = avx2_scheduling(SchedulerKind::Auto);
    faster.target.caches[1].bytes /= 2;
    Schedules(faster, kept).chain(chain_body());
    EXPECT_EQ(folder.files(), 2u);
    Schedules(avx2_scheduling(SchedulerKind::Auto, 2), kept).chain(chain_body());
    EXPECT_EQ(folder.files(), 3u);
}

TEST(Schedules, seconds_are_the_model_s_where_there_is_one) {
    Scheduling how = avx2_scheduling(SchedulerKind::Gensor);
    Schedules with(how);
    const Schedules::Scheduled& s = with.kernel(body_of("k"));
    EXPECT_DOUBLE_EQ(s.seconds, estimate(s.program, how.target).seconds);
    how.estimates = false;
    Schedules without(how);
    EXPECT_EQ(without.kernel(body_of("k")).seconds, 0);
}

TEST(Schedules, a_kernel_of_one_product_is_no_chain) {
    Schedules schedules(avx2_scheduling(SchedulerKind::Mcfuser));
    EXPECT_FALSE(schedules.chain(body_of("k")));
    EXPECT_FALSE(schedules.chain(body_of("k")));
}

TEST(Orchestrate, plans_of_every_scheduler_compute_their_programs) {
    for (uint64_t seed = 0; seed < 240; ++seed) {
        const Program program = random_program(seed, 2 + static_cast<int>(seed % 9));
        OrchestrateOptions options;
        const SchedulerKind kind = kKinds[seed % std::size(kKinds)];
        options.scheduling = avx2_scheduling(kind, 1 + static_cast<int>(seed / 6 % 3));
        options.scheduling.trials = 8;
        measure_schedules_by(options.scheduling, by_model(options.scheduling));
        options.layouts = seed % 7 != 0;
        KernelSet kernels;
        const Plan plan = plan_program(program, kernels, options);
        for (const TileProgram& kernel : kernels.kernels())
            ASSERT_EQ(verify(kernel), std::vector<std::string>()) << to_string(kind) << " seed " << seed << "\n"
                                                                  << print(kernel);
        for (const Step& step : plan.steps) {
            EXPECT_GE(std::get<KernelCall>(step.what).estimated_seconds, 0);
        }
        const std::vector<Tensor> inputs = random_inputs(program, seed);
        ASSERT_LE(largest_difference(interpret(program, inputs), run_by_tiles(plan, kernels, inputs)), 1e-5)
            << to_string(kind) << " seed " << seed << "\n"
            << plan.print();
    }
}

}  // namespace
}  // namespace tilewright
