// Loops that are alike run side by side where there is a thread for each; everything else keeps the plan's order.

#include "model/step_order.h"
#include "compile/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "model/recurrence_test.h"
#include "model/session.h"

namespace tilewright {
namespace {

using test::Recurrences;

bool is_loop(const Plan& plan, size_t s) {
    const auto* id = std::get_if<PrimitiveId>(&plan.steps[s].what);
    return id != nullptr && std::get_if<Loop>(&plan.program.primitives[*id].kind) != nullptr;
}

/// How many loops run together, each time that some do. Fails where a step is missing, or runs before what it reads.
std::vector<size_t> together(const Recurrences& options, int threads) {
    const auto model = compile_program(recurrences(options), {});
    const Plan& plan = model->plan();
    std::vector<bool> may_wait;
    for (size_t s = 0; s < plan.steps.size(); ++s) may_wait.push_back(is_loop(plan, s));
    std::vector<size_t> out;
    std::set<ValueId> there(plan.program.inputs.begin(), plan.program.inputs.end());
    for (const auto& [v, tensor] : plan.program.constants) there.insert(v);
    size_t steps = 0;
    for (const std::vector<size_t>& now : step_order(plan, threads, may_wait)) {
        steps += now.size();
        std::vector<ValueId> made;
        for (const size_t s : now) {
            std::vector<PrimitiveId> primitives;
            if (const auto* call = std::get_if<KernelCall>(&plan.steps[s].what))
                primitives = call->primitives;
            else
                primitives = {std::get<PrimitiveId>(plan.steps[s].what)};
            for (const PrimitiveId id : primitives) {
                for (const ValueId v : plan.program.primitives[id].inputs())
                    EXPECT_EQ(there.count(v), 1u) << plan.program.values[v].name;
                const std::vector<ValueId>& results = plan.program.primitives[id].outputs;
                made.insert(made.end(), results.begin(), results.end());
            }
        }
        there.insert(made.begin(), made.end());
        if (now.size() > 1) out.push_back(now.size());
    }
    EXPECT_EQ(steps, plan.steps.size());
    return out;
}

Recurrences loops(int n) {
    Recurrences out;
    out.loops = n;
    return out;
}

TEST(StepOrder, of_loops_that_are_alike_runs_as_many_together_as_there_are_threads) {
    using testing::ElementsAre;
    using testing::IsEmpty;
    EXPECT_THAT(together(loops(2), 2), ElementsAre(2));
    EXPECT_THAT(together(loops(2), 1), IsEmpty());
    EXPECT_THAT(together(loops(2), 3), IsEmpty());  // all threads share each product
    EXPECT_THAT(together(loops(3), 3), ElementsAre(3));
    EXPECT_THAT(together(loops(5), 2), ElementsAre(2, 2));
}

TEST(StepOrder, of_loops_that_need_each_other_or_differ_is_the_plans) {
    Recurrences chained = loops(2), different = loops(2);
    chained.chained = different.different = true;
    for (const Recurrences& options : {chained, different}) {
        EXPECT_THAT(together(options, 2), testing::IsEmpty());
        const auto model = compile_program(recurrences(options), {});
        const Plan& plan = model->plan();
        std::vector<bool> may_wait;
        for (size_t s = 0; s < plan.steps.size(); ++s) may_wait.push_back(is_loop(plan, s));
        const auto order = step_order(plan, 2, may_wait);
        for (size_t s = 0; s < order.size(); ++s) EXPECT_EQ(order[s], std::vector<size_t>{s});
    }
}

}  // namespace
}  // namespace tilewright
