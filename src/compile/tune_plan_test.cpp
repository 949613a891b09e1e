// Tuning within a budget, with injected times: what is measured, what is kept, and what later compilations use of it.

#include "compile/tune_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>

#include "base/temporary_folder_test.h"
#include "compile/pipeline.h"
#include "compile/tuned_plan.h"
#include "cost/given_test.h"
#include "model/session.h"
#include "orchestrate/program_test.h"
#include "program/random_program.h"
#include "schedule/kernel_costs_test.h"

namespace tilewright {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Two products of different sizes, one of them twice. Their default plan has no chain.
Program model() {
    return parse_program(R"(program t {
  input x: f32[96, 128]
  input w: f32[128, 128]
  input v: f32[128, 256]
  a: f32[96, 128] = [96, 128] sum(i2 < 128) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  b: f32[96, 128] = [96, 128] sum(i2 < 128) mul(@0, @1) where @0 = a[i0, i2], @1 = w[i2, i1]
  c: f32[96, 256] = [96, 256] sum(i2 < 128) mul(@0, @1) where @0 = b[i0, i2], @1 = v[i2, i1]
  y: f32[256, 96] = [256, 96] @0 where @0 = c[i1, i0]
  output y
})");
}

/// Measured times by text: the default schedule of a product takes `usual`, others what `other` says of their text. A
/// chain takes `chain` times the sum of its products.
class Times {
  public:
    std::function<Trial(size_t hash)> other = [](size_t hash) {
        return Trial{Verdict::measured, 1e-6 * (5 + static_cast<double>(hash % 100)), false};
    };
    double usual = 1e-4, chain = 1.5;
    std::map<std::string, Trial> database;  ///< what was measured, as long as this object lives
    std::map<std::string, int> runs;
    size_t stop_after = SIZE_MAX;  ///< candidates; then it throws, as a killed process ends

    MeasureTrials measure() {
        return [this](const std::vector<TileProgram>& candidates, const std::vector<bool>&) {
            std::vector<Trial> out;
            for (const TileProgram& p : candidates) {
                const std::string text = print_without_names(p);
                const auto known = database.find(text);
                if (known != database.end()) {
                    out.push_back(known->second);
                    out.back().recalled = true;
                    continue;
                }
                if (++measured_ > stop_after) throw std::runtime_error("killed");
                ++runs[text];
                const std::string stages = print(p.stages);
                const bool first = seen_.insert(stages).second;
                out.push_back(first ? Trial{Verdict::measured, usual, false} : other(std::hash<std::string>()(text)));
                if (const size_t n = p.stages.primitives.size(); n > 1)
                    out.back().seconds *= chain * static_cast<double>(n);
                database[text] = out.back();
            }
            return std::optional(out);
        };
    }

  private:
    std::set<std::string> seen_;
    size_t measured_ = 0;
};

class TunePlan : public testing::Test {
  protected:
    TunePlan() {
        tune.budget.candidates = 60;
        tune.measure = times.measure();
        tune.run = [this](const std::vector<Plan>& plans, const KernelSet&) {
            ++whole_runs;
            std::vector<PlanTimes> out;
            for (size_t k = 0; k < plans.size(); ++k) out.push_back({k == 0 ? 1e-3 : tuned_run, {}});
            return out;
        };
    }

    CompileOptions options() const {
        CompileOptions o;
        o.threads = 1;
        o.machine = generic_target(VectorIsa::avx2);
        o.database = folder / "tuning.db";
        o.ranges = ranges;
        o.joint = joint;
        o.note = [this](const std::string& text) { notes += text + "\n"; };
        o.warn = o.note;
        return o;
    }
    std::shared_ptr<const CompiledModel> tuned_model(const Program& program = model()) {
        CompileOptions o = options();
        o.tune = [&](const PlanToTune& plan) { report = tune_plan(plan, tune); };
        return compile_program(program, o);
    }
    std::string text(bool tuned, const Program& program = model()) const {
        CompileOptions o = options();
        o.tuned = tuned;
        return text(*compile_program(program, o));
    }
    static std::string text(const CompiledModel& m) { return m.dump("plan") + m.dump("tiles"); }

    const TemporaryFolder folder;
    std::map<std::string, DimRange> ranges;
    std::optional<joint::Options> joint;
    Times times;
    TunePlanOptions tune;
    TuneReport report;
    double tuned_run = 5e-4;
    int whole_runs = 0;
    mutable std::string notes;
};

TEST_F(TunePlan, faster_schedules_make_a_plan_that_later_compilations_use) {
    const std::string usual = text(false), tuned = text(*tuned_model());
    EXPECT_NE(tuned, usual);
    EXPECT_TRUE(report.kept);
    EXPECT_EQ(report.initial, 1e-3);
    EXPECT_EQ(report.tuned, 5e-4);
    const size_t runs = times.runs.size();
    EXPECT_EQ(text(true), tuned);
    EXPECT_EQ(text(false), usual) << "plans change with --tuned only";
    EXPECT_EQ(times.runs.size(), runs);
    EXPECT_EQ(notes, "");
}

TEST_F(TunePlan, the_tuned_model_computes_the_same) {
    const auto tuned = tuned_model();
    ASSERT_TRUE(report.kept);
    const std::vector<Tensor> inputs = random_inputs(model(), 4);
    const std::vector<Tensor> expected = interpret(model(), inputs);
    double largest = 0;
    for (int64_t i = 0; i < expected[0].count(); ++i) largest = std::max(largest, std::abs(expected[0].get(i)));
    EXPECT_LE(largest_difference(expected, Session(tuned, 1).run(inputs)), 1e-5 * largest);
}

TEST_F(TunePlan, a_chain_joins_the_plan_where_its_measured_time_is_shorter) {
    times.chain = 0.1;
    const std::string usual = text(false), tuned = text(*tuned_model());
    EXPECT_THAT(usual, Not(HasSubstr("stage1")));
    EXPECT_THAT(tuned, HasSubstr("stage1"));
    EXPECT_EQ(text(true), tuned);
    size_t joined = 0;
    for (const TuneReport::Kernel& k : report.kernels) joined += k.chain && k.calls == 0 && k.tuned_calls == 1 ? 1 : 0;
    EXPECT_EQ(joined, 1u);
}

TEST_F(TunePlan, the_report_has_a_row_for_each_distinct_kernel) {
    tuned_model();
    size_t calls = 0;
    double share = 0;
    for (const TuneReport::Kernel& k : report.kernels) {
        calls += k.calls;
        share += k.share;
        EXPECT_LE(k.seconds, k.initial);
        EXPECT_GT(k.limit, 0);
        if (k.source != ScheduleSource::Default) {
            EXPECT_LT(k.seconds, 0.98 * k.initial);
        }
    }
    EXPECT_EQ(calls, 3u);
    EXPECT_EQ(report.kernels.size(), 2u) << "equal kernels are one";
    EXPECT_NEAR(share, 1, 1e-9);
    EXPECT_TRUE(std::is_sorted(report.kernels.begin(), report.kernels.end(),
                               [](const auto& a, const auto& b) { return a.share > b.share; }));
}

/// Two convolutions.
Program images() {
    return test::with_weights(R"(program images {
  input x: f32[1, 16, 9, 9]
  input w: f32[16, 16, 3, 3]
  input v: f32[32, 16]
  a: f32[1, 16, 7, 7] = [1, 16, 7, 7] sum(i4 < 16, i5 < 3, i6 < 3) mul(@0, @1) then max(acc, 0.0) where @0 = x[i0, i4, i2 + i5, i3 + i6], @1 = w[i1, i4, i5, i6]
  y: f32[1, 32, 7, 7] = [1, 32, 7, 7] sum(i4 < 16) mul(@0, @1) where @0 = a[i0, i4, i2, i3], @1 = v[i1, i4]
  output y
})");
}

class TuneLayoutsOfPlan : public TunePlan {
  protected:
    TuneLayoutsOfPlan() {
        joint.emplace();
        joint->measure_seconds = 1000;
        joint->search.most_points = 60;
        joint->search.measured = joint->search.constructed = 30;
        // Blocks of eight channels are four times as fast.
        const auto costs = std::make_shared<test::FakeCosts>(EstimatedCosts(options().machine));
        costs->kernel = [this](const TileProgram& kernel, const std::vector<bool>&) {
            ++measured;
            MeasuredKernel out;
            out.seconds = 1e-4;
            for (const Value& v : kernel.stages.values)
                if (v.shape.size() == 5 && v.shape.back().is_constant(8)) out.seconds /= 4;
            return std::optional(out);
        };
        tune.layout_costs = costs;
        tune.budget.candidates = 8;
    }
    std::string kernels(bool tuned) const { return text(tuned, images()); }

    size_t measured = 0;
};

TEST_F(TuneLayoutsOfPlan, are_measured_first_and_belong_to_the_plan) {
    const std::string usual = kernels(false), tuned = text(*tuned_model(images()));
    EXPECT_TRUE(report.layouts.kept);
    EXPECT_EQ(report.layouts.initial, 1e-3);
    EXPECT_EQ(report.layouts.seconds, 5e-4);
    EXPECT_TRUE(report.kept);
    EXPECT_GT(measured, 30u);
    EXPECT_THAT(tuned, HasSubstr(", 7, 8]")) << "a or y in blocks";
    EXPECT_THAT(usual, Not(HasSubstr(", 7, 8]")));
    const size_t before = measured;
    EXPECT_EQ(kernels(true), tuned);
    EXPECT_EQ(kernels(false), usual) << "plans change with --tuned only";
    EXPECT_EQ(measured, before);
    EXPECT_THAT(notes, Not(HasSubstr("not used")));
}

TEST_F(TuneLayoutsOfPlan, are_those_of_an_earlier_tuning) {
    tuned_model(images());
    const size_t before = measured;
    tune.budget.candidates = 24;
    const std::string tuned = text(*tuned_model(images()));
    EXPECT_EQ(measured, before);
    EXPECT_EQ(kernels(true), tuned);
    EXPECT_TRUE(report.layouts.kept);
    EXPECT_EQ(report.layouts.initial, 0) << "not compared again";
}

TEST_F(TuneLayoutsOfPlan, stay_where_whole_runs_are_as_fast) {
    tuned_run = 0.99e-3;
    tuned_model(images());
    EXPECT_TRUE(report.layouts.searched);
    EXPECT_FALSE(report.layouts.kept);
    EXPECT_FALSE(report.kept);
    EXPECT_EQ(kernels(true), kernels(false));
    const size_t before = measured;
    tuned_model(images());
    EXPECT_EQ(measured, before) << "that they stay is known";
}

TEST_F(TuneLayoutsOfPlan, stay_without_time_for_them) {
    joint->measure_seconds = 0;
    tuned_model(images());
    EXPECT_FALSE(report.layouts.searched);
    EXPECT_EQ(measured, 0u);
}

TEST_F(TunePlan, a_budget_of_candidates_is_exact) {
    for (const size_t budget : {1, 8, 13, 30}) {
        tune.budget.candidates = budget;
        tuned_model();
        EXPECT_EQ(report.tried, budget);
        EXPECT_THAT(report.ended, HasSubstr("budget"));
    }
}

TEST_F(TunePlan, a_budget_of_time_is_not_exceeded) {
    double now = 5e6;  // every candidate takes a second
    tune.budget = {std::nullopt, 30.0};
    tune.now_ms = [&] { return now; };
    tune.measure = [&, measure = tune.measure](const std::vector<TileProgram>& candidates, const std::vector<bool>& w) {
        now += 1e3 * static_cast<double>(candidates.size());
        return measure(candidates, w);
    };
    tuned_model();
    EXPECT_LE(report.seconds, 30);
    EXPECT_GE(report.seconds, 10);
    EXPECT_THAT(report.ended, HasSubstr("time"));
}

TEST_F(TunePlan, wrong_and_failed_candidates_are_never_chosen) {
    times.other = [](size_t hash) {  // the fastest would be wrong
        return Trial{hash % 3 == 0   ? Verdict::wrong
                     : hash % 3 == 1 ? Verdict::failed
                                     : Verdict::measured,
                     hash % 3 == 2 ? 9e-5 : 0, false};
    };
    tuned_model();
    EXPECT_GT(report.wrong, 0u);
    EXPECT_GT(report.failed, 0u);
    for (const TuneReport::Kernel& k : report.kernels) {
        EXPECT_LE(k.failed + k.wrong, k.tried);
        EXPECT_TRUE(k.seconds == 9e-5 || k.seconds == 1e-4 || k.seconds == 0) << k.seconds;
    }
}

TEST_F(TunePlan, nothing_is_kept_where_no_schedule_is_faster) {
    times.other = [](size_t) { return Trial{Verdict::measured, 1.99e-4, false}; };
    EXPECT_EQ(text(*tuned_model()), text(false));
    EXPECT_FALSE(report.kept);
    EXPECT_THAT(report.reason, HasSubstr("no kernel"));
    EXPECT_EQ(whole_runs, 0);
    EXPECT_EQ(text(true), text(false));
}

TEST_F(TunePlan, nothing_is_kept_where_whole_runs_are_not_faster) {
    tuned_run = 0.985e-3;
    EXPECT_EQ(text(*tuned_model()), text(false));
    EXPECT_FALSE(report.kept);
    EXPECT_THAT(report.reason, HasSubstr("2 %"));
    EXPECT_EQ(text(true), text(false));
}

TEST_F(TunePlan, nothing_is_kept_where_whole_runs_fail) {
    tune.run = [](const auto&, const auto&) { return std::vector<PlanTimes>(); };
    EXPECT_EQ(text(*tuned_model()), text(false));
    EXPECT_THAT(report.reason, HasSubstr("could not be compared"));
    EXPECT_EQ(text(true), text(false));
}

TEST_F(TunePlan, schedules_that_are_slower_within_a_run_are_dropped) {
    tuned_model();
    const std::string all = text(true);
    const auto last = [&] {  // the kernel that is called once
        return *std::find_if(report.kernels.begin(), report.kernels.end(), [](const auto& k) { return k.calls == 1; });
    };
    ASSERT_NE(last().source, ScheduleSource::Default);
    tune.run = [this](const std::vector<Plan>& plans, const KernelSet&) {
        std::vector<PlanTimes> out = {{1e-3, {}}, {tuned_run, {}}};
        for (size_t k = 0; k < plans.size(); ++k)
            for (const Step& s : plans[k].steps) {
                const auto* call = std::get_if<KernelCall>(&s.what);
                const bool product_of_y = plans[k].program.values[call->tensors.back()].name == "y";
                out[k].steps.push_back(k == 0 ? 1e-4 : product_of_y ? 2e-4 : 5e-5);
            }
        return out;
    };
    EXPECT_EQ(text(true), all);
    TuningDatabase(options().database).prune({.older_than = INT64_MAX});
    const std::string fewer = text(*tuned_model());
    EXPECT_TRUE(report.kept);
    EXPECT_EQ(last().source, ScheduleSource::Default);
    EXPECT_TRUE(last().dropped);
    EXPECT_NE(fewer, all);
    EXPECT_NE(fewer, text(false));
    EXPECT_EQ(text(true), fewer);
    EXPECT_EQ(text(*tuned_model()), fewer) << "again";
    EXPECT_EQ(last().source, ScheduleSource::Default);
    EXPECT_TRUE(last().dropped);
}

/// Whole runs of equal plans may differ by more than the margin.
TEST_F(TunePlan, the_default_plan_is_not_kept_as_a_tuned_one) {
    int whole_plans = 0;
    times.chain = 100;
    tune.run = [&](const std::vector<Plan>& plans, const KernelSet&) {
        ++whole_plans;
        std::vector<PlanTimes> out = {{1e-3, {}}, {tuned_run, {}}};
        for (size_t k = 0; k < plans.size(); ++k) out[k].steps.assign(plans[k].steps.size(), k == 0 ? 1e-4 : 2e-4);
        return out;
    };
    for (const char* turn : {"first", "again"}) {
        SCOPED_TRACE(turn);
        EXPECT_EQ(text(*tuned_model()), text(false));
        EXPECT_FALSE(report.kept);
        EXPECT_THAT(report.reason, HasSubstr("in whole runs, no kernel"));
        EXPECT_EQ(report.initial, 0) << "not compared";
        EXPECT_EQ(whole_plans, 1);
        EXPECT_EQ(text(true), text(false));
    }
}

TEST_F(TunePlan, without_a_tuned_plan_a_note_says_so) {
    EXPECT_EQ(text(true), text(false));
    EXPECT_THAT(notes, HasSubstr("tilewright tune"));
}

TEST_F(TunePlan, an_interrupt_ends_with_what_was_found) {
    int rounds = 0;
    tune.interrupted = [&] { return ++rounds > 4; };
    tuned_model();
    EXPECT_EQ(report.ended, "interrupted");
    EXPECT_GT(report.tried, 8u);
    EXPECT_LT(report.tried, 60u);
    EXPECT_TRUE(report.kept);
}

TEST_F(TunePlan, after_a_kill_nothing_is_measured_again_and_the_result_is_the_same) {
    const std::string expected = text(*tuned_model());
    const TuneReport whole = report;
    std::mt19937 rng(11);
    for (int k = 0; k < 3; ++k) {
        const TemporaryFolder other;
        Times killed;
        tune.measure = killed.measure();
        CompileOptions o = options();
        o.database = other / "tuning.db";
        o.tune = [&](const PlanToTune& plan) { report = tune_plan(plan, tune); };
        for (size_t at = rng() % 10; at < 30; at += 4 + rng() % 10) {
            killed.stop_after = at;
            EXPECT_THROW(compile_program(model(), o), std::runtime_error);
        }
        killed.stop_after = SIZE_MAX;
        EXPECT_EQ(text(*compile_program(model(), o)), expected);
        EXPECT_EQ(report.tried, whole.tried) << "the budget counts what was measured before";
        EXPECT_GT(report.recalled, 0u);
        for (const auto& [program, runs] : killed.runs) EXPECT_EQ(runs, 1);
    }
}

TEST_F(TunePlan, the_same_command_again_measures_nothing) {
    const std::string first = text(*tuned_model());
    const size_t runs = times.runs.size();
    const int before = whole_runs;
    EXPECT_EQ(text(*tuned_model()), first);
    EXPECT_EQ(times.runs.size(), runs);
    EXPECT_EQ(whole_runs, before) << "the comparison is recalled";
    EXPECT_TRUE(report.kept);
}

TEST_F(TunePlan, a_smaller_budget_does_not_lose_an_earlier_result) {
    const std::string first = text(*tuned_model());
    tune.budget.candidates = 10;
    EXPECT_EQ(text(*tuned_model()), first);
    EXPECT_EQ(text(true), first);
}

TEST_F(TunePlan, another_model_does_not_change_a_tuned_plan) {
    const std::string first = text(*tuned_model());
    const Program other = parse_program(R"(program t {
  input x: f32[96, 128]
  input w: f32[128, 128]
  y: f32[96, 128] = [96, 128] sum(i2 < 128) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  output y
})");
    times.usual = 1e-5;
    tuned_model(other);
    EXPECT_EQ(text(true), first);
    EXPECT_EQ(text(true, other) == text(false, other), !report.kept);
}

TEST_F(TunePlan, a_plan_that_was_not_confirmed_is_not_used) {
    ASSERT_NE(text(*tuned_model()), text(false));
    TuningDatabase db(options().database);
    std::vector<Choice> choices = db.choices();
    ASSERT_EQ(choices.size(), 1u);
    choices[0].schedule[0] = choices[0].schedule[0] == 'f' ? '0' : 'f';  // of the plan's hash
    db.insert(choices[0]);
    EXPECT_EQ(text(true), text(false));
    EXPECT_THAT(notes, HasSubstr("the tuned plan is not used"));
}

TEST_F(TunePlan, a_damaged_record_is_no_plan) {
    tuned_model();
    TuningDatabase db(options().database);
    Choice choice = db.choices().at(0);
    choice.schedule.resize(choice.schedule.size() / 2);
    db.insert(choice);
    EXPECT_EQ(text(true), text(false));
}

TEST_F(TunePlan, tuned_plans_of_this_machine_have_a_text_that_changes_with_them) {
    CompileOptions o = options();
    o.machine = host_target();
    o.tune = [&](const PlanToTune& plan) { report = tune_plan(plan, tune); };
    const auto hash = [&] { return tuned_plans_text(TuningDatabase(o.database)); };
    const std::string none = hash();
    tune.budget.candidates = 10;
    compile_program(model(), o);
    const std::string one = hash();
    EXPECT_NE(one, none);
    EXPECT_EQ(hash(), one);
    tune.budget.candidates = 60;
    compile_program(model(), o);
    EXPECT_NE(hash(), one);
}

TEST_F(TunePlan, kernels_of_dynamic_sizes_are_tuned_at_the_assumed_ones) {
    const Program dynamic = parse_program(R"(program t {
  input x: f32[$n, 128]
  input w: f32[128, 256]
  y: f32[$n, 256] = [$n, 256] sum(i2 < 128) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  output y
})");
    const auto tuned = tuned_model(dynamic);
    EXPECT_TRUE(report.kept);
    EXPECT_EQ(text(true, dynamic), text(*tuned));
    for (const int64_t n : {1, 7, 130}) {
        Tensor x(DType::F32, {n, 128}), w(DType::F32, {128, 256});
        for (int64_t i = 0; i < x.count(); ++i) x.set(i, static_cast<double>(i % 13) - 6);
        for (int64_t i = 0; i < w.count(); ++i) w.set(i, static_cast<double>(i % 7) - 3);
        EXPECT_LE(largest_difference(interpret(dynamic, {x, w}), Session(tuned, 1).run({x, w})), 1e-3);
    }
}

TEST_F(TunePlan, calls_are_those_of_the_plan_that_samples_were_merged_to) {
    const Program dynamic = parse_program(R"(program t {
  input x: f32[$n, 128]
  input w: f32[128, 256]
  y: f32[$n, 256] = [$n, 256] sum(i2 < 128) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  output y
})");
    ranges["n"] = parse_dim_range("1..512:1,8,128");
    const auto usual = compile_program(dynamic, options());
    size_t calls = 0;
    for (const Step& s : usual->plan().steps) calls += std::holds_alternative<KernelCall>(s.what) ? 1 : 0;
    const auto tuned = tuned_model(dynamic);
    size_t reported = 0;
    for (const TuneReport::Kernel& k : report.kernels) {
        reported += k.calls;
        EXPECT_TRUE(k.calls > 0 || k.tuned_calls > 0);
    }
    EXPECT_EQ(reported, calls);
    EXPECT_EQ(text(true, dynamic), text(*tuned));
}

TEST_F(TunePlan, kernels_that_cannot_be_measured_keep_their_schedules) {
    tune.measure = [](const auto&, const auto&) { return std::optional<std::vector<Trial>>(); };
    EXPECT_EQ(text(*tuned_model()), text(false));
    EXPECT_EQ(report.tried, 0u);
    EXPECT_EQ(report.ended, "no kernel is expected to gain");
}

TEST_F(TunePlan, it_says_what_it_measures) {
    std::vector<TuningState> states;
    tune.watch = [&](const TuningState& s) { states.push_back(s); };
    tuned_model();
    ASSERT_GT(states.size(), 2u);
    EXPECT_EQ(states.back().kernel, "") << "whole runs";
    for (size_t i = 1; i < states.size(); ++i) EXPECT_GE(states[i].tried, states[i - 1].tried);
    EXPECT_EQ(states[0].tried, 0u);
}

/// With kernels that run on this machine.
TEST_F(TunePlan, candidates_are_measured_on_this_machine) {
    tune.measure = nullptr;
    tune.budget.candidates = 20;
    CompileOptions o = options();
    o.machine = host_target();
    o.tune = [&](const PlanToTune& plan) { report = tune_plan(plan, tune); };
    compile_program(model(), o);
    EXPECT_EQ(report.tried, 20u);
    EXPECT_EQ(report.recalled, 0u);
    EXPECT_EQ(report.wrong, 0u);
    EXPECT_GE(TuningDatabase(o.database).measurements().size(), 20u - report.failed);
    compile_program(model(), o);
    EXPECT_EQ(report.tried, 20u);
    EXPECT_EQ(report.recalled, 20u);
}

}  // namespace
}  // namespace tilewright
