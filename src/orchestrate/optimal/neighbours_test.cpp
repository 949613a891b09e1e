// Neighbouring kernels that were not selected as one have a reason: a refusal, or their costs.

#include "orchestrate/optimal/neighbours.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "cost/given_test.h"
#include "orchestrate/optimal/planning_test.h"
#include "schedule/kernel_costs_test.h"

namespace tilewright::optimal {
namespace {

using namespace tilewright::test;
using namespace tilewright::optimal::test;
using testing::ElementsAre;
using testing::Pair;

OrchestrationReport report_on(const Program& p, OrchestrateOptions options) {
    options.keep_refusals = true;
    KernelSet set;
    return given(plan_program(p, set, options).optimal);
}

/// Reasons by the names of the two kernels' results: "h", "y" -> the reason.
std::map<std::string, std::string> reasons(const OrchestrationReport& report) {
    std::map<std::string, std::string> out;
    for (const auto& [pair, reason] : report.not_fused)
        out[report.kernels[pair.first].writes.at(0) + " " + report.kernels[pair.second].writes.at(0)] = reason;
    return out;
}

/// Every kernel takes `alone` seconds; kernels of a reduction and a function take `together`.
void measure(OrchestrateOptions& options, double alone, double together) {
    options.optimal.profile = Profile::Full;
    options.optimal.most_measured = 1;
    measure_kernels_by(options.scheduling, [=](const TileProgram& kernel, const std::vector<bool>&) {
        const std::string text = print(kernel.stages);
        const bool both = text.find("exp(") != std::string::npos && text.find("sum(") != std::string::npos;
        return std::optional(MeasuredKernel{both ? together : alone, false});
    });
}

constexpr const char* kProductThenFunction = R"(program t {
  input x: f32[64, 48]
  input w: f32[48, 32]
  h: f32[64, 32] = [64, 32] sum(i2 < 48) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  y: f32[64, 32] = [64, 32] exp(@0) where @0 = h[i0, i1]
  output y
})";

TEST(Neighbours, have_the_measured_costs_of_one_kernel_and_of_two) {
    OrchestrateOptions options = optimally();
    measure(options, 10e-6, 500e-6);
    const double launch = 1e6 * kKernelSeconds;
    EXPECT_THAT(reasons(report_on(parse_program(kProductThenFunction), options)),
                ElementsAre(Pair("h y", fmt::format("measured {:.1f} us together, {:.1f} us apart", 500 + launch,
                                                    20 + 2 * launch))));
    measure(options, 500e-6, 10e-6);
    EXPECT_THAT(reasons(report_on(parse_program(kProductThenFunction), options)), testing::IsEmpty());
}

TEST(Neighbours, have_the_reason_why_they_cannot_be_one_kernel) {
    const Program p = parse_program(R"(program t {
  input x: f32[64, 48]
  input w: f32[48, 32]
  input u: f32[32, 80]
  h: f32[64, 32] = [64, 32] sum(i2 < 48) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  y: f32[64, 80] = [64, 80] sum(i2 < 32) mul(@0, @1) where @0 = h[i0, i2], @1 = u[i2, i1]
  output y
})");
    EXPECT_THAT(reasons(report_on(p, optimally())),
                ElementsAre(Pair("h y", "several products, but the scheduler does not support chains")));
}

TEST(Neighbours, have_the_limit_that_a_kernel_of_both_exceeds) {
    size_t limited = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
        OrchestrateOptions options = optimally();
        options.optimal.kernel_nodes = 1;
        for (const auto& [pair, reason] :
             report_on(random_program(seed, 4 + static_cast<int>(seed % 7)), options).not_fused)
            limited += reason.ends_with("primitives, more than --kernel-nodes") ? 1 : 0;
    }
    EXPECT_GT(limited, 0u);
}

/// Every pair of neighbours in a piece has a reason, which agrees with the costs in it. Reasons do not change the plan.
TEST(Neighbours, have_a_reason_that_agrees_with_the_costs) {
    size_t estimated = 0, refused = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
        const Program p = random_program(seed, 4 + static_cast<int>(seed % 7));
        OrchestrateOptions options = optimally();
        KernelSet without, with;
        const Plan plain = plan_program(p, without, options);
        options.keep_refusals = true;
        const Plan plan = plan_program(p, with, options);
        ASSERT_EQ(without.kernels().size(), with.kernels().size());
        for (size_t k = 0; k < with.kernels().size(); ++k)
            EXPECT_EQ(print(without.kernels()[k]), print(with.kernels()[k]));
        EXPECT_TRUE(given(plain.optimal).not_fused.empty());
        const OrchestrationReport& report = given(plan.optimal);
        for (size_t a = 0; a < report.kernels.size(); ++a)
            for (size_t b = 0; b < report.kernels.size(); ++b) {
                const KernelReport &from = report.kernels[a], &to = report.kernels[b];
                if (a == b || from.piece != to.piece) continue;
                const bool reads = std::any_of(to.reads.begin(), to.reads.end(), [&](const std::string& v) {
                    return std::find(from.writes.begin(), from.writes.end(), v) != from.writes.end();
                });
                const auto it = report.not_fused.find({a, b});
                ASSERT_EQ(it != report.not_fused.end(), reads) << "seed " << seed;
                if (!reads) continue;
                double together = 0, apart = 0;
                if (std::sscanf(it->second.c_str(), "estimated %lf us together, %lf us apart", &together, &apart) !=
                    2) {
                    EXPECT_NE(it->second, "");
                    ++refused;
                    continue;
                }
                ++estimated;
                EXPECT_NEAR(apart, 1e6 * (from.estimate + to.estimate), 0.06);
                EXPECT_TRUE(together >= apart || !it->second.ends_with("apart")) << it->second;
            }
    }
    EXPECT_GT(estimated, 5u);
    EXPECT_GT(refused, 5u);
}

}  // namespace
}  // namespace tilewright::optimal
