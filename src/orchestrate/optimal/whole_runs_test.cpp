// Decisions by whole runs: pieces that keep greedy kernels, and refused library kernels.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "cost/given_test.h"
#include "orchestrate/optimal/planning_test.h"
#include "orchestrate/options.h"
#include "orchestrate/schedules.h"
#include "schedule/kernel_costs_test.h"

namespace tilewright::optimal {
namespace {

using namespace tilewright::test;
using namespace tilewright::optimal::test;
using testing::ElementsAre;

/// Kernels that are faster alone but slower in whole runs are not taken, piece by piece; the decision is kept.
TEST(GroupOptimally, keeps_the_greedy_rules_kernels_where_they_are_faster_in_whole_runs) {
    // Two different layers, one piece each. Alone, kernels of several stages are slow, so the plan has single stages.
    const Program p = with_weights(R"(program t {
  input x: f32[64, 48]
  input w0: f32[48, 32]
  input w1: f32[32, 80]
  p: f32[64, 32] = [64, 32] sum(i2 < 48) mul(@0, @1) where @0 = x[i0, i2], @1 = w0[i2, i1]
  q: f32[64, 32] = [64, 32] exp(@0) where @0 = p[i0, i1]
  r: f32[64, 80] = [64, 80] sum(i2 < 32) mul(@0, @1) where @0 = q[i0, i2], @1 = w1[i2, i1]
  y: f32[64, 80] = [64, 80] exp(@0) where @0 = r[i0, i1]
  output y
})");
    OrchestrateOptions options = optimally();
    options.optimal.profile = Profile::Lazy;
    options.optimal.most_measured = 1;
    options.optimal.piece_nodes = 2;
    measure_kernels_by(options.scheduling, [&](const TileProgram& kernel, const std::vector<bool>&) {
        const std::string text = print(kernel.stages);
        const bool fused = text.find("exp(") != std::string::npos && text.find("sum(") != std::string::npos;
        return std::optional(MeasuredKernel{fused ? 1e-3 : 1e-5, false});
    });
    // In whole runs every kernel takes 1 ms, except that of the first layer's product and function.
    bool first_is_slow = false;
    size_t runs = 0;
    options.run = [&](const std::vector<Plan>& plans, const KernelSet&) {
        ++runs;
        return times_by_step(plans, [&](const Plan& plan, const KernelCall& call) {
            const bool fused = plan.program.primitives[call.primitives.back()].expr()->reducer != Reducer::None;
            return first_is_slow && fused && plan.program.values[call.tensors.back()].name == "q" ? 5e-3 : 1e-3;
        });
    };
    std::map<std::string, std::string> memory;
    options.remember = remember_in(memory);
    OrchestrationReport last;
    const auto planned = [&] {
        KernelSet set;
        const Plan plan = plan_of(p, options, set);
        const std::vector<Tensor> inputs = random_inputs(p, 3);
        EXPECT_LE(largest_difference(interpret(p, inputs), run_by_tiles(plan, set, inputs)), 1e-3);
        for (const KernelReport& k : given(plan.optimal).kernels) EXPECT_LT(k.piece, plan.optimal->pieces.size());
        EXPECT_EQ(plan.optimal->pieces.size(), 2u);
        last = given(plan.optimal);
        return kernels(plan);
    };
    // Two kernels are slower than one, in both pieces.
    EXPECT_THAT(planned(), ElementsAre("q", "y"));
    EXPECT_EQ(runs, 1u);
    // The report shows that the emitted kernels cost much more than the bound of the plan.
    constexpr double kAlone = 1e-5 + kKernelSeconds, kFused = 1e-3 + kKernelSeconds;
    EXPECT_NEAR(last.bound(), 4 * kAlone, 1e-9);
    EXPECT_NEAR(last.seconds(), 4 * kAlone, 1e-9);
    EXPECT_NEAR(last.emitted(), 2 * kFused, 1e-9);
    EXPECT_NEAR(given(last.gap()), 0, 1e-6);
    EXPECT_NEAR(given(last.emitted_gap()), (2 * kFused - 4 * kAlone) / (4 * kAlone), 1e-3);
    EXPECT_EQ(last.greedy_pieces(), 2u);
    EXPECT_THAT(planned(), ElementsAre("q", "y"));
    EXPECT_EQ(runs, 1u) << "remembered";
    EXPECT_EQ(last.greedy_pieces(), 2u);
    // If the greedy kernel of the first layer is slow, that piece keeps the plan's kernels, the other does not.
    memory.clear();
    first_is_slow = true;
    EXPECT_THAT(planned(), ElementsAre("p", "q", "y"));
    EXPECT_EQ(runs, 4u) << "the two plans, then what is made of both beside the greedy rule's, twice";
    EXPECT_EQ(last.greedy_pieces(), 1u);
    EXPECT_NEAR(last.emitted(), 2 * kAlone + kFused, 1e-9);
    // On a machine that cannot run them, the plan of single kernels stays.
    memory.clear();
    options.run = [](const std::vector<Plan>&, const KernelSet&) { return std::vector<PlanTimes>(); };
    EXPECT_THAT(planned(), ElementsAre("p", "q", "r", "y"));
    EXPECT_TRUE(memory.empty());
    EXPECT_EQ(last.greedy_pieces(), 0u);
    EXPECT_NEAR(given(last.emitted_gap()), 0, 1e-6);
}

/// Library kernels that are faster alone stay if they are faster in whole runs; others become generated code again.
TEST(GroupOptimally, keeps_a_librarys_kernels_where_they_are_faster_in_whole_runs) {
    const Program p = with_weights(R"(program t {
  input x: f32[64, 48]
  input w0: f32[48, 32]
  input w1: f32[32, 80]
  q: f32[64, 32] = [64, 32] sum(i2 < 48) mul(@0, @1) where @0 = x[i0, i2], @1 = w0[i2, i1]
  y: f32[64, 80] = [64, 80] sum(i2 < 32) mul(@0, @1) where @0 = q[i0, i2], @1 = w1[i2, i1]
  output y
})");
    OrchestrateOptions options = optimally();
    options.optimal.profile = Profile::Lazy;
    options.optimal.most_measured = 1;
    measure_kernels_by(options.scheduling, [&](const TileProgram&, const std::vector<bool>& weights) {
        EXPECT_THAT(weights, testing::Contains(true));
        MeasuredKernel m{5e-6, false};
        m.library = m.provider = "library 1.0";
        m.library_seconds = 5e-6;
        return std::optional(m);
    });
    // In whole runs a kernel takes 1 ms, the library's first one half of it, its second one twice.
    size_t runs = 0;
    double more = 0;  // additional time of a run per library kernel in the second comparison
    options.run = [&](const std::vector<Plan>& plans, const KernelSet&) {
        ++runs;
        std::vector<PlanTimes> out = times_by_step(plans, [](const Plan& plan, const KernelCall& call) {
            const bool first = plan.program.values[call.tensors.back()].name == "q";
            return call.provider.empty() ? 1e-3 : first ? 5e-4 : 2e-3;
        });
        for (size_t k = 0; runs > 1 && k < plans.size(); ++k)
            for (const Step& step : plans[k].steps)
                if (!std::get<KernelCall>(step.what).provider.empty()) out[k].seconds += more;
        return out;
    };
    std::map<std::string, std::string> memory;
    options.remember = remember_in(memory);
    const auto providers = [&](const OrchestrateOptions& how) {
        KernelSet set;
        const Plan plan = plan_of(p, how, set);
        std::vector<std::string> out;
        for (const Step& step : plan.steps) {
            const auto& call = std::get<KernelCall>(step.what);
            out.push_back(call.provider);
            EXPECT_EQ(set.provided()[call.kernel].provider, call.provider);
        }
        if (how.orchestrator == Orchestrator::Optimal) {
            const ProviderReport& r = given(given(plan.optimal).provider);
            EXPECT_EQ(r.kept, static_cast<size_t>(std::count(out.begin(), out.end(), "library 1.0")));
            EXPECT_EQ(r.faster, 2u);
        }
        return out;
    };
    EXPECT_THAT(providers(options), ElementsAre("library 1.0", ""));
    EXPECT_EQ(runs, 3u) << "with and without the library, then the mixture, twice";
    EXPECT_THAT(providers(options), ElementsAre("library 1.0", ""));
    EXPECT_EQ(runs, 3u) << "remembered";
    EXPECT_THAT(providers(greedily(options)), ElementsAre("", ""));
    memory.clear();
    runs = 0;
    more = 1e-3;  // a gain by the kernel, and a loss elsewhere
    EXPECT_THAT(providers(options), ElementsAre("", ""));
    memory.clear();
    options.run = {};
    EXPECT_THAT(providers(options), ElementsAre("library 1.0", "library 1.0"));
}

/// A product and a function: one kernel by greedy orchestration, two if only these measure fast.
const char* kProductAndFunction = R"(program t {
  input x: f32[64, 48]
  input w0: f32[48, 32]
  p: f32[64, 32] = [64, 32] sum(i2 < 48) mul(@0, @1) where @0 = x[i0, i2], @1 = w0[i2, i1]
  q: f32[64, 32] = [64, 32] exp(@0) where @0 = p[i0, i1]
  output q
})";

bool has_both(const Program& stages) {
    const std::string text = print(stages);
    return text.find("exp(") != std::string::npos && text.find("sum(") != std::string::npos;
}

/// A plan is taken if it gains 1 % over the greedy one in both comparisons of whole runs.
TEST(WholeRuns, accept_a_plan_with_a_margin_and_twice) {
    const Program p = with_weights(kProductAndFunction);
    OrchestrateOptions options = optimally();
    options.optimal.profile = Profile::Lazy;
    options.optimal.most_measured = 1;
    measure_kernels_by(options.scheduling, [&](const TileProgram& kernel, const std::vector<bool>&) {
        return std::optional(MeasuredKernel{has_both(kernel.stages) ? 1e-3 : 1e-5, false});
    });
    const auto kernels_where = [&](const std::vector<double>& plan_takes) {
        size_t runs = 0;
        std::vector<bool> plan_first;
        options.run = [&](const std::vector<Plan>& plans, const KernelSet&) {
            std::vector<PlanTimes> out;
            plan_first.push_back(plans[0].steps.size() == 2);
            for (const Plan& plan : plans) {
                const double whole = plan.steps.size() == 2 ? plan_takes.at(runs) : 1;
                out.push_back(
                    {whole, std::vector<double>(plan.steps.size(), whole / static_cast<double>(plan.steps.size()))});
            }
            ++runs;
            return out;
        };
        KernelSet set;
        const Plan plan = plan_of(p, options, set);
        EXPECT_EQ(runs, plan_takes.size());
        EXPECT_TRUE(runs < 2 || plan_first[0] != plan_first[1]) << "in the other order";
        const InModelReport& in_model = given(given(plan.optimal).in_model);
        EXPECT_EQ(in_model.greedy, plan.steps.size() == 1 ? 1u : 0u);
        return plan.steps.size();
    };
    EXPECT_EQ(kernels_where({0.9, 0.95}), 2u);
    EXPECT_EQ(kernels_where({0.9, 1.01}), 1u) << "the second comparison refutes the first";
    EXPECT_EQ(kernels_where({0.9, 0.995}), 1u) << "the second gains less than the margin";
    EXPECT_EQ(kernels_where({0.995}), 1u) << "a gain below the margin";
    EXPECT_EQ(kernels_where({1.1}), 1u);
}

/// A library's product is so fast alone that it becomes a kernel of its own. When it is refused in whole runs, the
/// program is solved again with the costs of generated code.
TEST(WholeRuns, solve_again_without_a_refused_library) {
    const Program p = with_weights(kProductAndFunction);
    OrchestrateOptions options = optimally();
    options.optimal.profile = Profile::Lazy;
    options.optimal.most_measured = 1;
    measure_kernels_by(options.scheduling, [&](const TileProgram& kernel, const std::vector<bool>&) {
        const bool both = has_both(kernel.stages);
        const bool product = !both && print(kernel.stages).find("sum(") != std::string::npos;
        MeasuredKernel m{both ? 20e-6 : product ? 15e-6 : 6e-6, false};
        if (product) {
            m.library = m.provider = "library 1.0";
            m.generated_seconds = m.seconds;
            m.seconds = 5e-6;
            m.library_seconds = m.seconds;
        }
        return std::optional(m);
    });
    double of_library = 2e-3;
    size_t runs = 0;
    options.run = [&](const std::vector<Plan>& plans, const KernelSet&) {
        ++runs;
        return times_by_step(plans, [&](const Plan& plan, const KernelCall& call) {
            return plan.steps.size() == 1 ? 4e-3 : call.provider.empty() ? 1e-3 : of_library;
        });
    };
    std::map<std::string, std::string> memory;
    options.remember = remember_in(memory);
    for (const bool remembered : {false, true}) {
        runs = 0;
        KernelSet set;
        const Plan plan = plan_of(p, options, set);
        EXPECT_THAT(kernels(plan), ElementsAre("q")) << plan.print();
        const OrchestrationReport report = given(plan.optimal);
        EXPECT_NEAR(report.seconds(), 20e-6 + kKernelSeconds, 1e-9);
        EXPECT_NEAR(report.bound(), report.seconds(), 1e-9);
        EXPECT_NEAR(report.emitted(), report.seconds(), 1e-12);
        const ProviderReport& provider = given(report.provider);
        EXPECT_EQ(provider.solved_again, 1u);
        EXPECT_EQ(provider.in_model, 1u);
        EXPECT_EQ(provider.kept, 0u);
        EXPECT_EQ(runs, remembered ? 0u : 3u) << "twice plan and greedy rule, then with and without the library";
    }
    // A library kernel that is as fast in whole runs stays, and nothing is solved again.
    memory.clear();
    of_library = 5e-4;
    KernelSet set;
    const Plan plan = plan_of(p, options, set);
    EXPECT_EQ(plan.steps.size(), 2u);
    EXPECT_EQ(given(given(plan.optimal).provider).solved_again, 0u);
    EXPECT_EQ(given(plan.optimal->provider).kept, 1u);
    EXPECT_NEAR(plan.optimal->emitted(), 11e-6 + 2 * kKernelSeconds, 1e-9);
}

}  // namespace
}  // namespace tilewright::optimal
