#pragma once
// Options of planning, and its hooks: costs of kernels, and runs of whole plans.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orchestrate/ablations.h"
#include "orchestrate/optimal/options.h"
#include "orchestrate/plan.h"
#include "schedule/scheduler.h"

namespace tilewright {

class CodeCache;
class Schedules;

/// What a plan takes on this machine, run as a model.
struct PlanTimes {
    double seconds = 0;         ///< of a run
    std::vector<double> steps;  ///< of each step
};
/// Runs plans of one program, whose kernels are those of the set, in turns, and takes medians. Nothing where they
/// cannot be run.
using RunPlans = std::function<std::vector<PlanTimes>(std::vector<Plan>, const KernelSet&)>;

/// Memory for choices: by a text that says what there was to choose from, and for what.
struct RememberChoice {
    std::function<std::optional<std::string>(const std::string& of)> find;
    std::function<void(const std::string& of, const std::string& chosen)> keep;
};

/// Which primitives share kernels, and in which layouts.
struct GroupingOptions {
    bool fuse = true;     ///< false: one kernel a primitive
    bool layouts = true;  ///< false: everything row-major
    Orchestrator orchestrator = Orchestrator::Greedy;
    OptimalOptions optimal;    ///< where the orchestrator is Optimal; its `profile` says what is measured for it
    WatchOrchestration watch;  ///< likewise; called before each piece, and before each kernel that is measured
    Ablations without;
    bool keep_refusals = false;     ///< the plan says why kernels were not fused (Plan::refusals)
    std::vector<std::string> skip;  ///< passes to leave out, by name (compile/pass.h)
};

struct OrchestrateOptions : GroupingOptions {
    /// How kernels are scheduled, and for which target. Its costs must measure kernels where OptimalOptions::profile is
    /// not None.
    Scheduling scheduling;
    RunPlans run;             ///< compares whole plans; may be empty
    RememberChoice remember;  ///< what came of that; may be empty
    /// Kernels that were scheduled before, by the same Scheduling; those that are not there yet are added. None: those
    /// of one plan alone are kept.
    std::shared_ptr<Schedules> schedules;
    /// Where schedules that took long to find are kept for the next time (schedules.h); null: nowhere.
    std::shared_ptr<const CodeCache> kept;
};

/// OrchestrateOptions::schedules, or new ones.
std::shared_ptr<Schedules> schedules_of(const OrchestrateOptions& options);

}  // namespace tilewright
