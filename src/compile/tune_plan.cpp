#include "compile/tune_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "compile/measured_costs.h"
#include "compile/pipeline.h"
#include "compile/tune_jobs.h"
#include "compile/tuned_plan.h"
#include "compile/whole_runs.h"
#include "cost/annotate_options.h"
#include "model/compiled_model.h"
#include "model/model_sources.h"
#include "orchestrate/dynamic/ways.h"
#include "orchestrate/joint/decision.h"
#include "orchestrate/schedules.h"
#include "tile/annotate/annotate.h"

namespace tilewright {

namespace {

constexpr size_t kRound = 8;  ///< candidates; a tuner measures as many in turns

/// The share of the seconds of a kernel outside of the plan that is expected to be gained if it is measured.
constexpr double kUnplannedGain = 0.1;

/// Of a budget of time, at most, for layouts.
constexpr double kLayoutShare = 1.0 / 3;

/// Of a budget of time, for planning, code and whole runs at the end: seconds, and at most a share.
constexpr double kLastSeconds = 12, kLastShare = 0.3;

struct Task {
    KernelTuning kernel;
    size_t initial_calls = 0;  ///< of the default plan
    size_t asked = 0;          ///< groups of the default plan's planning that it was compared for
    size_t calls = 0;          ///< of the plan so far
    double round_seconds = 0;  ///< that its last round took
};

/// A plan, and the keys of the kernels that its steps call: empty for a step without kernel. No keys where steps choose
/// among several, or have bodies.
struct PlannedKernels {
    Plan plan;
    std::vector<std::string> keys;
};

/// `called`: the keys in the order in which kernels were planned.
std::vector<std::string> keys_of_steps(const Plan& plan, const std::vector<std::string>& called) {
    std::vector<std::string> out;
    size_t next = 0;
    for (const Step& step : plan.steps) {
        const auto* call = std::get_if<KernelCall>(&step.what);
        if (!step.bodies.empty() || (call != nullptr && (call->way || next == called.size()))) return {};
        out.push_back(call != nullptr ? called[next++] : "");
    }
    return next == called.size() ? out : std::vector<std::string>();
}

/// Counts the calls of a plan and its bodies by the kernel's text.
void count_calls(const Plan& plan, const KernelSet& kernels, std::map<std::string, size_t>& counts) {
    for (const Step& step : plan.steps) {
        if (const auto* call = std::get_if<KernelCall>(&step.what))
            ++counts[print_without_names(kernels.kernels()[call->kernel])];
        for (const auto& body : step.bodies) count_calls(*body, kernels, counts);
    }
}

/// Seconds of a run by key.
std::map<std::string, double> seconds_by_key(const PlannedKernels& planned, const PlanTimes& times) {
    std::map<std::string, double> out;
    for (size_t i = 0; i < std::min(planned.keys.size(), times.steps.size()); ++i)
        if (!planned.keys[i].empty()) out[planned.keys[i]] += times.steps[i];
    return out;
}

class PlanTuning {
  public:
    PlanTuning(const PlanToTune& given, const TunePlanOptions& options)
        : given_(given),
          o_(options),
          planning_(given.planning),
          database_(open_database(given.options)),
          measure_(options.measure ? options.measure
                                   : trials_on_host(given.options, given.planning.scheduling.target,
                                                    bytes_of_constants(given.program), database_)),
          begin_(now()) {
        if (options.jobs == 0) return;
        collector_.emplace(given.options, given.planning.scheduling.target, bytes_of_constants(given.program),
                           database_, options.jobs);
        measure_ = [this](const std::vector<TileProgram>& candidates, const std::vector<bool>& weights) {
            return collector_->trials(candidates, weights);
        };
    }
    PlanTuning(const PlanTuning&) = delete;
    PlanTuning& operator=(const PlanTuning&) = delete;

    TuneReport run() {
        KernelSet kernels;
        const PlannedKernels initial = plan(kernels, schedules_with(nullptr));
        for (auto& [key, task] : tasks_) task.initial_calls = task.calls;
        choose_layouts(initial, kernels);
        if (!layouts_.empty()) plan_again();
        first_plan_ = false;
        if (database_) earlier_ = find_tuned_plan(*database_, given_.key);
        rounds();
        if (collector_) {
            report_.jobs = collector_->take();
            return std::move(report_);
        }
        compare(initial, kernels);
        report_.seconds = seconds();
        return std::move(report_);
    }

  private:
    double now() const { return o_.now_ms ? o_.now_ms() : now_ms(); }
    double seconds() const { return 1e-3 * (now() - begin_); }

    /// Sets the layouts in which kernels are tuned: those of an earlier tuning, or the fastest in whole runs of the
    /// default plan's, those by measurements and the default heuristic's.
    void choose_layouts(const PlannedKernels& initial, KernelSet kernels) {
        if (!planning_.layouts || !planning_.joint) return;
        const auto known = database_ ? find_tuned_layouts(*database_, given_.key) : std::nullopt;
        if (known && (known->empty() || use_tuned_layouts(planning_, *known))) {
            report_.layouts = {true, 0, 0, !known->empty()};
            layouts_ = *known;
            return;
        }
        double limit = given_.options.joint ? given_.options.joint->measure_seconds : 0;
        if (o_.budget.seconds) limit = std::min(limit, kLayoutShare * *o_.budget.seconds);
        if (collector_ || limit <= 0) return;
        if (o_.watch) o_.watch({"layouts", 0, 0, 0, o_.budget.seconds.value_or(0)});
        try {
            search_layouts(limit, initial, kernels);
        } catch (const RuntimeError& e) {
            if (given_.options.warn) given_.options.warn(fmt::format("layouts are not tuned: {}", e.what()));
        }
    }

    void search_layouts(double limit, const PlannedKernels& initial, KernelSet& kernels) {
        const auto measured = std::make_shared<std::vector<joint::Decision>>();
        OrchestrateOptions search = given_.planning;
        search.joint->measure = true;
        search.joint->measure_seconds = limit;
        search.joint->record = measured;
        search.scheduling.costs = o_.layout_costs ? o_.layout_costs : measuring_costs(limit);
        std::vector<Plan> plans{initial.plan, plan_program(given_.program, kernels, search)};
        if (measured->empty()) return;  // the pass is skipped
        const std::vector<std::string> layouts{"", joint::print(*measured),
                                               joint::print(std::vector<joint::Decision>(measured->size()))};
        OrchestrateOptions rule = given_.planning;
        use_tuned_layouts(rule, layouts[2]);
        plans.push_back(plan_program(given_.program, kernels, rule));
        const RunPlans runs = o_.run ? o_.run : plan_runner(given_.model, given_.options, false);
        const std::vector<PlanTimes> times = runs(plans, kernels);
        if (times.size() != plans.size()) throw RuntimeError("there are no inputs for whole runs");
        size_t best = 0;
        for (size_t k = 1; k < times.size(); ++k)
            if (times[k].seconds < std::min(times[best].seconds, (1 - kWholeRunGain) * times[0].seconds)) best = k;
        report_.layouts = {true, times[0].seconds, times[best].seconds, best != 0};
        layouts_ = layouts[best];
        if (best != 0) use_tuned_layouts(planning_, layouts_);
        keep([&](TuningDatabase& database) { keep_tuned_layouts(database, given_.key, layouts_); });
    }

    std::shared_ptr<const KernelCosts> measuring_costs(double limit) const {
        CompileOptions options = given_.options;
        options.tune = nullptr;
        options.joint->measure = true;
        options.joint->measure_seconds = limit;
        return orchestrate_options(options, bytes_of_constants(given_.program)).scheduling.costs;
    }

    /// For plans with tuned schedules; null: without.
    std::shared_ptr<Schedules> schedules_with(std::shared_ptr<const TunedSchedules> tuned) {
        return std::make_shared<Schedules>(planning_.scheduling, planning_.kept, std::move(tuned),
                                           [this](const Schedules::Made& m) {
                                               Task& task = task_of(m);
                                               if (!m.planned) {
                                                   task.asked += first_plan_ ? 1 : 0;
                                                   return;
                                               }
                                               if (task.calls++ == 0) texts_[m.key] = text_in_plan(m.schedule.program);
                                               called_.push_back(m.key);
                                           });
    }

    /// Adds kernels that are new.
    PlannedKernels plan(KernelSet& kernels, const std::shared_ptr<Schedules>& schedules) {
        for (auto& [key, task] : tasks_) task.calls = 0;
        called_.clear();
        texts_.clear();
        OrchestrateOptions planning = planning_;
        planning.schedules = schedules;
        PlannedKernels out{plan_program(given_.program, kernels, planning), {}};
        out.keys = keys_of_steps(out.plan, called_);
        // Of kernels that were planned for samples of sizes, only some are in the ways of the merged plan.
        std::map<std::string, size_t> counts;
        count_calls(out.plan, kernels, counts);
        for (auto& [key, task] : tasks_) task.calls = 0;
        for (const std::string& key : called_) {
            size_t& left = counts[texts_.at(key)];
            if (left == 0) continue;
            ++tasks_.at(key).calls;
            --left;
        }
        return out;
    }

    /// A schedule as the later passes leave it.
    std::string text_in_plan(TileProgram program) const {
        dynamic::drop_unneeded_bounds(program);
        return print_without_names(annotate(std::move(program), annotate_options(given_.planning.scheduling.target)));
    }

    Task& task_of(const Schedules::Made& m) {
        const auto it = tasks_.find(m.key);
        if (it != tasks_.end()) {
            if (m.planned) it->second.kernel.set_name(m.body.stages.name);
            return it->second;
        }
        order_.push_back(m.key);
        const Scheduling& how = given_.planning.scheduling;
        return tasks_
            .emplace(m.key, Task{KernelTuning(m.body, m.chain, m.schedule.program, m.schedule.seconds,
                                              kernel_costs(how)->lower_bound(m.body.stages), how)})
            .first->second;
    }

    /// Schedules of all kernels that have been measured, now or by an earlier tuning of the model, whichever is faster.
    std::shared_ptr<const TunedSchedules> tuned() const {
        auto out = std::make_shared<TunedSchedules>(earlier_ ? earlier_->schedules : TunedSchedules());
        for (const auto& [key, task] : tasks_) {
            if (!task.kernel.initial_seconds()) continue;
            TunedSchedule now = task.kernel.tuned_schedule();
            if (const TunedSchedule* s = out->find(key); s == nullptr || s->seconds >= now.seconds)
                out->set(key, std::move(now));
        }
        return out;
    }

    /// Whether tuning ends before a round of this kernel.
    bool over(const Task& next) {
        if (!report_.ended.empty()) return true;
        if (o_.interrupted && o_.interrupted())
            report_.ended = "interrupted";
        else if (collector_ && collector_->full())
            report_.ended = "there are as many jobs as wanted";
        else if (o_.budget.candidates && tried_ >= *o_.budget.candidates)
            report_.ended = "all candidates of the budget were tried";
        else if (o_.budget.seconds && seconds() + std::max(round_seconds(), next.round_seconds) > time_for_rounds())
            report_.ended = "the time of the budget is over";
        return !report_.ended.empty();
    }

    double time_for_rounds() const {
        const double all = *o_.budget.seconds;
        return all - std::min(kLastSeconds, kLastShare * all);
    }

    /// Expected seconds of a round: the mean of those that ran something.
    double round_seconds() const { return rounds_ == 0 ? 0 : in_rounds_ / static_cast<double>(rounds_); }

    void round(Task& task) {
        KernelTuning& k = task.kernel;
        if (o_.watch)
            o_.watch({k.name(), tried_, k.initial_seconds().value_or(0), k.seconds().value_or(0),
                      o_.budget.seconds ? std::max(0.0, *o_.budget.seconds - seconds()) : 0});
        const size_t left = o_.budget.candidates ? *o_.budget.candidates - tried_ : kRound, recalled = k.recalled;
        const double begin = seconds();
        const size_t count = k.round(measure_, std::min(kRound, left));
        tried_ += count;
        if (k.recalled - recalled == count) return;
        ++rounds_;
        task.round_seconds = seconds() - begin;
        in_rounds_ += task.round_seconds;
    }

    /// The kernel of the next round among those for which `calls` is not 0.
    Task* next(const std::function<double(const Task&)>& calls) {
        std::vector<KernelProgress> all;
        for (const std::string& key : order_) {
            Task& task = tasks_.at(key);
            task.kernel.progress.calls = calls(task);
            all.push_back(task.kernel.progress);
        }
        const auto k = next_kernel(all);
        return k ? &tasks_.at(order_[*k]) : nullptr;
    }

    void rounds() {
        const auto calls = [](const Task& t) {
            if (t.calls > 0) return static_cast<double>(t.calls);
            return t.kernel.progress.rounds > 0 ? 0 : kUnplannedGain * static_cast<double>(t.asked);
        };
        Task* task = next(calls);
        for (; task != nullptr && !over(*task); task = next(calls)) {
            const bool planned = task->calls > 0;
            round(*task);
            if (!planned) plan_again();
        }
        if (task == nullptr && report_.ended.empty()) report_.ended = "no kernel is expected to gain";
    }

    /// A kernel outside of the plan may have joined it.
    void plan_again() {
        KernelSet kernels;
        plan(kernels, schedules_with(tuned()));
    }

    /// Rows of all kernels, in their order.
    void report_kernels() {
        double total = 0;
        for (const std::string& key : order_) {
            const Task& task = tasks_.at(key);
            const KernelTuning& k = task.kernel;
            report_.tried += k.tried();
            report_.failed += k.failed;
            report_.wrong += k.wrong;
            report_.recalled += k.recalled;
            total += static_cast<double>(task.initial_calls) * k.initial_seconds().value_or(k.estimate());
        }
        for (const std::string& key : order_) {
            const Task& task = tasks_.at(key);
            const KernelTuning& k = task.kernel;
            TuneReport::Kernel out;
            out.name = k.name();
            out.chain = k.chain();
            out.calls = task.initial_calls;
            out.initial = k.initial_seconds().value_or(0);
            out.seconds = k.gains() ? *k.seconds() : out.initial;
            out.limit = k.progress.limit;
            out.source = k.source();
            out.tried = k.tried();
            out.failed = k.failed;
            out.wrong = k.wrong;
            const double all = static_cast<double>(out.calls) * k.initial_seconds().value_or(k.estimate());
            out.share = total > 0 ? all / total : 0;
            report_.kernels.push_back(std::move(out));
        }
    }

    /// All but whole runs, once the tuned plan is made of these schedules. Kernels that are in neither plan get no row.
    void report(const TunedSchedules& schedules) {
        report_kernels();
        for (size_t i = 0; i < order_.size(); ++i) {
            TuneReport::Kernel& row = report_.kernels[i];
            row.tuned_calls = tasks_.at(order_[i]).calls;
            const TunedSchedule* used = schedules.find(order_[i]);
            if (used == nullptr || row.initial == 0) continue;
            const auto source = schedule_source_from_string(used->source).value_or(ScheduleSource::Default);
            row.dropped = row.source != ScheduleSource::Default && source == ScheduleSource::Default;
            row.seconds = used->seconds;
            row.source = source;
        }
        std::erase_if(report_.kernels, [&](const auto& k) {
            const bool other = k.calls + k.tuned_calls == 0;
            report_.others += other && k.tried > 0 ? 1 : 0;
            return other;
        });
        std::stable_sort(report_.kernels.begin(), report_.kernels.end(),
                         [](const auto& a, const auto& b) { return a.share > b.share; });
    }

    /// Compares the default plan and the tuned one by whole runs, and uses the better one. `kernels`: of the former.
    void compare(const PlannedKernels& initial, const KernelSet& kernels) {
        const std::string of_initial = plan_hash(initial.plan, kernels);
        TunedPlan found;
        found.schedules = *tuned();
        found.layouts = layouts_;
        found.proposed = hash_with(found.schedules);
        if (found.proposed == of_initial) {
            report_.reason = "no kernel of the plan is faster with another schedule";
            found.hash = of_initial;
        } else if (const auto failure = run_both(found, initial, of_initial, kernels)) {
            report_.reason = fmt::format("whole runs could not be compared: {}", *failure);
            report(found.schedules);
            return;
        }
        KernelSet own;
        Plan best = plan(own, schedules_with(std::make_shared<const TunedSchedules>(found.schedules))).plan;
        report(found.schedules);
        report_.initial = found.initial;
        report_.tuned = found.tuned;
        report_.kept = found.kept;
        keep([&](TuningDatabase& database) { keep_tuned_plan(database, given_.key, found); });
        if (!found.kept) return;
        given_.model.plan = std::move(best);
        given_.model.sources->kernels = std::move(own);
    }

    std::string hash_with(const TunedSchedules& schedules) {
        KernelSet kernels;
        const PlannedKernels planned = plan(kernels, schedules_with(std::make_shared<const TunedSchedules>(schedules)));
        return plan_hash(planned.plan, kernels);
    }

    /// Runs the proposed plan and the default one, and drops schedules that are slower there. Then runs what is left,
    /// and sets the times of both plans and whether the tuned one is kept. Returns why they cannot be run.
    /// `of_initial`: the default plan's hash.
    std::optional<std::string> run_both(TunedPlan& found, const PlannedKernels& initial, const std::string& of_initial,
                                        const KernelSet& kernels) try {
        const auto& inputs = given_.options.inputs;
        for (const Tensor& t : inputs ? inputs(given_.model.inputs) : std::vector<Tensor>())
            found.inputs += to_string(t.shape());
        if (earlier_ && earlier_->proposed == found.proposed && earlier_->inputs == found.inputs &&
            hash_with(earlier_->schedules) == earlier_->hash) {
            found = *earlier_;
        } else {
            if (o_.watch) o_.watch({"", tried_, 0, 0, 0});
            drop_slower(found, initial, kernels);
            found.hash = hash_with(found.schedules);
        }
        // With nothing left, whole runs would compare the default plan with itself.
        if (found.hash == of_initial) {
            report_.reason = "in whole runs, no kernel of the plan is faster with another schedule";
            found.initial = found.tuned = 0;
            found.kept = false;
            return std::nullopt;
        }
        if (found.initial == 0) {
            const std::vector<PlanTimes> times = run(found, initial, kernels, false).second;
            found.initial = times[0].seconds;
            found.tuned = times[1].seconds;
            found.kept = found.tuned < (1 - kWholeRunGain) * found.initial;
        }
        if (!found.kept) report_.reason = fmt::format("whole runs are not {:.0f} % faster", 100 * kWholeRunGain);
        return std::nullopt;
    } catch (const std::exception& e) {
        return e.what();
    }

    /// The plan of `found`, and the times of both plans.
    std::pair<PlannedKernels, std::vector<PlanTimes>> run(const TunedPlan& found, const PlannedKernels& initial,
                                                          KernelSet kernels, bool steps) {
        PlannedKernels best = plan(kernels, schedules_with(std::make_shared<const TunedSchedules>(found.schedules)));
        const RunPlans runs = o_.run ? o_.run : plan_runner(given_.model, given_.options, steps);
        std::vector<PlanTimes> times = runs({initial.plan, best.plan}, kernels);
        if (times.size() != 2) throw RuntimeError("there are no inputs for them");
        return {std::move(best), std::move(times)};
    }

    void drop_slower(TunedPlan& found, const PlannedKernels& initial, const KernelSet& kernels) {
        const auto [best, times] = run(found, initial, kernels, true);
        const auto before = seconds_by_key(initial, times[0]), now = seconds_by_key(best, times[1]);
        for (const auto& [key, task] : tasks_) {
            const auto was = before.find(key), is = now.find(key);
            if (task.kernel.initial_seconds() && was != before.end() && is != now.end() && is->second >= was->second)
                found.schedules.set(key, task.kernel.initial_schedule());
        }
    }

    void keep(const std::function<void(TuningDatabase&)>& record) {
        if (!database_) return;
        try {
            record(*database_);
        } catch (const CannotKeep& e) {
            if (given_.options.warn) given_.options.warn(fmt::format("the tuned plan is not stored: {}", e.what()));
        }
    }

    const PlanToTune& given_;
    const TunePlanOptions& o_;
    OrchestrateOptions planning_;  ///< with the layouts in which kernels are tuned
    std::string layouts_;          ///< their decisions (TunedPlan::layouts); empty: the default plan's
    const std::shared_ptr<TuningDatabase> database_;
    MeasureTrials measure_;
    std::optional<JobCollector> collector_;
    const double begin_;
    std::map<std::string, Task> tasks_;         ///< by key
    std::map<std::string, std::string> texts_;  ///< by key, of the kernels that the last plan's passes planned
    std::vector<std::string> called_;           ///< keys of the kernels that the last plan calls
    std::vector<std::string> order_;            ///< keys, in the order in which the planner made them
    bool first_plan_ = true;                    ///< it is the default one
    std::optional<TunedPlan> earlier_;          ///< of an earlier tuning
    TuneReport report_;
    size_t tried_ = 0;
    size_t rounds_ = 0;     ///< in which something ran
    double in_rounds_ = 0;  ///< seconds of these
};

}  // namespace

TuneReport tune_plan(const PlanToTune& given, const TunePlanOptions& options) {
    return PlanTuning(given, options).run();
}

}  // namespace tilewright
