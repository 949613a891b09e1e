#pragma once
// Tunes the kernels of a model's plan within a budget: the pass `tune` of `tilewright tune`.
//
//     kernels    those that the default plan calls, and those that the planner compared but did not use: GEMM chains,
//                kernels that a chain replaces, parts of split sums
//     rounds     a few candidates of one kernel are checked and measured, by the allocation of tune/allocation.h
//     plan       the planner runs again with the fastest schedules and their times, by which it groups kernels
//     whole runs compare that plan with the default one, in turns
//
// A kernel outside of the plan gets one round when a tenth of its time is worth it, after which the model is planned
// again.

#include <functional>
#include <string>
#include <vector>

#include "compile/options.h"
#include "compile/tune_jobs.h"
#include "compile/tune_kernel.h"
#include "orchestrate/options.h"
#include "tune/allocation.h"
#include "tune/database.h"

namespace tilewright {

/// What the pass `tune` is given.
struct PlanToTune {
    CompiledModel::Impl& model;   ///< with the default plan, which a better one replaces
    const Program& program;       ///< as it was planned
    OrchestrateOptions planning;  ///< its options
    ChoiceKey key;                ///< tuned_plan_key()
    const CompileOptions& options;
};

/// For display.
struct TuningState {
    std::string kernel;            ///< that is measured; empty: whole runs are
    size_t tried = 0;              ///< candidates so far, of all kernels
    double initial = 0, best = 0;  ///< seconds of the kernel; 0: not measured yet
    double seconds_left = 0;       ///< of a budget of time
};

struct TunePlanOptions {
    TuningBudget budget;
    std::function<void(const TuningState&)> watch;  ///< may be empty
    std::function<bool()> interrupted;              ///< ends the tuning with what was found; may be empty
    /// Not 0: nothing is measured, and the report has at most so many rounds of the budget that the database does not
    /// know (tune_jobs.h); the plan is not compared.
    size_t jobs = 0;
    MeasureTrials measure;                            ///< trials_on_host if empty
    RunPlans run;                                     ///< whole runs; plan_runner if empty
    std::shared_ptr<const KernelCosts> layout_costs;  ///< of kernels in other layouts; null: measured on this machine
    std::function<double()> now_ms;                   ///< the clock of a budget of time; base/clock.h if empty
};

struct TuneReport {
    struct Kernel {
        std::string name;
        bool chain = false;
        size_t calls = 0, tuned_calls = 0;  ///< in the default plan, and in the tuned one
        double share = 0;                   ///< of the sum of all kernels' seconds in the default plan
        double initial = 0, seconds = 0;    ///< of its default and of its tuned schedule; 0: not measured
        double limit = 0;                   ///< a lower bound of its seconds; 0: none is known
        ScheduleSource source = ScheduleSource::Default;
        bool dropped = false;  ///< a schedule that is faster alone was slower in whole runs, so the default one stays
        size_t tried = 0, failed = 0, wrong = 0;
    };
    /// Layouts by measurements (joint::Options), before kernels are tuned in them: median seconds of whole runs of the
    /// default plan and with them; 0: not compared.
    struct Layouts {
        bool searched = false;  ///< by this tuning or an earlier one
        double initial = 0, seconds = 0;
        bool kept = false;
    };
    Layouts layouts;
    std::vector<Kernel> kernels;  ///< of both plans, the largest share first
    size_t others = 0;            ///< measured kernels that neither plan calls
    size_t tried = 0, failed = 0, wrong = 0, recalled = 0;
    double seconds = 0;             ///< that the tuning took
    std::string ended;              ///< why it ended
    double initial = 0, tuned = 0;  ///< median seconds of whole runs of both plans; 0: not compared
    bool kept = false;              ///< the tuned plan replaces the default one
    std::string reason;             ///< if not: why
    std::vector<TuneJob> jobs;      ///< of TunePlanOptions::jobs
};

/// With layouts that are tuned (joint::Options of the planning) layouts are chosen by measurements first, for at most
/// measure_seconds and a third of a budget of time, and kept if whole runs are faster by a margin. Jobs are of the
/// layouts that an earlier call has chosen.
///
/// Replaces the plan by the tuned one if whole runs of the latter are faster by a margin (2 %), and keeps the choice in
/// the tuning database. A budget of candidates counts those of earlier runs too, whose times are recalled; a budget of
/// time is of this call, and includes the whole runs.
TuneReport tune_plan(const PlanToTune& given, const TunePlanOptions& options);

}  // namespace tilewright
