#pragma once
// Plans of optimal orchestration, for tests.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "compile/pipeline.h"
#include "orchestrate/options.h"
#include "orchestrate/program_test.h"
#include "orchestrate/run_plan_test.h"
#include "orchestrate/scheduling_test.h"

namespace tilewright::optimal::test {

inline OrchestrateOptions optimally(int lanes = 8, int threads = 1, SchedulerKind kind = SchedulerKind::Default) {
    return tilewright::test::orchestration(Orchestrator::Optimal, lanes, threads, kind);
}

/// For one set of assumed sizes, as the selection is.
inline OrchestrateOptions greedily(OrchestrateOptions o) {
    o.orchestrator = Orchestrator::Greedy;
    o.skip.emplace_back("sample_sizes");
    return o;
}

/// "m + e + y" for each kernel: the results of its stages.
inline std::vector<std::string> kernels(const Plan& plan) {
    std::vector<std::string> out;
    for (const Step& step : plan.steps) {
        const auto* call = std::get_if<KernelCall>(&step.what);
        if (call == nullptr) {
            out.emplace_back("other");
            continue;
        }
        std::string line;
        for (const PrimitiveId id : call->primitives)
            line += (line.empty() ? "" : " + ") + plan.program.values[plan.program.primitives[id].outputs[0]].name;
        out.push_back(line);
    }
    return out;
}

/// OrchestrateOptions::remember with `memory` as the store.
inline RememberChoice remember_in(std::map<std::string, std::string>& memory) {
    RememberChoice out;
    out.find = [&memory](const std::string& of) {
        const auto it = memory.find(of);
        return it == memory.end() ? std::nullopt : std::optional(it->second);
    };
    out.keep = [&memory](const std::string& of, const std::string& chosen) { memory[of] = chosen; };
    return out;
}

/// Times for OrchestrateOptions::run: `seconds(plan, call)` for each step, and their sum. All steps must be kernels.
template <class F>
std::vector<PlanTimes> times_by_step(const std::vector<Plan>& plans, F&& seconds) {
    std::vector<PlanTimes> out;
    for (const Plan& plan : plans) {
        PlanTimes& times = out.emplace_back();
        for (const Step& step : plan.steps) {
            times.steps.push_back(seconds(plan, std::get<KernelCall>(step.what)));
            times.seconds += times.steps.back();
        }
    }
    return out;
}

inline Plan plan_of(const Program& p, const OrchestrateOptions& options, KernelSet& set) {
    Plan plan = plan_program(p, set, options);
    EXPECT_EQ(verify(plan.program), std::vector<std::string>()) << plan.print();
    for (const TileProgram& kernel : set.kernels())
        EXPECT_EQ(verify(kernel), std::vector<std::string>()) << print(kernel);
    return plan;
}

}  // namespace tilewright::optimal::test
