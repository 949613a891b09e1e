#pragma once
// Options of planning and its hooks, which give costs of kernels and run whole plans.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orchestrate/ablations.h"
#include "orchestrate/f32_products.h"
#include "orchestrate/joint/options.h"
#include "orchestrate/optimal/options.h"
#include "orchestrate/plan.h"
#include "program/sizes.h"
#include "schedule/scheduler.h"

namespace tilewright {

class CodeCache;
class Schedules;

/// Measured times of a plan in a run of the model, in seconds.
struct PlanTimes {
    double seconds = 0;         ///< of a run
    std::vector<double> steps;  ///< of each step
};
/// Runs plans of one program, with kernels of the set, in turns, and returns medians. Nothing where they cannot run.
using RunPlans = std::function<std::vector<PlanTimes>(std::vector<Plan>, const KernelSet&)>;

/// A store of decisions. The key describes the alternatives and their purpose.
struct RememberChoice {
    std::function<std::optional<std::string>(const std::string& of)> find;
    std::function<void(const std::string& of, const std::string& chosen)> keep;
};

/// Options for the choice of kernels and layouts.
struct GroupingOptions {
    bool fuse = true;     ///< false: one kernel per primitive
    bool layouts = true;  ///< false: all values are row-major
    /// Layouts are tuned together with loops (ALT); none: the default heuristic chooses them.
    std::optional<joint::Options> joint;
    Orchestrator orchestrator = Orchestrator::Greedy;
    OptimalOptions optimal;    ///< for Orchestrator::Optimal; its `profile` selects what is measured
    WatchOrchestration watch;  ///< for Orchestrator::Optimal; called before each piece and before each measured kernel
    Ablations without;
    /// Ranges and samples of symbolic dimensions; others have any size (program/sizes.h).
    std::map<std::string, DimRange> ranges;
    F32Products f32_products;  ///< under Precision::BF16 and F16, on a CPU
    int bf16_terms = 0;  ///< of operands of f32 products on a CPU's tile registers (bf16_terms.h); 0: none are split
    bool sizes_apart = false;       ///< FusionLimits::sizes_apart: where a session runs such kernels once
    bool keep_refusals = false;     ///< record why kernels were not fused (Plan::refusals)
    std::vector<std::string> skip;  ///< passes to leave out, by name (compile/pass.h)
};

struct OrchestrateOptions : GroupingOptions {
    /// How kernels are scheduled, and for which target. The costs must measure kernels unless OptimalOptions::profile
    /// is None.
    Scheduling scheduling;
    RunPlans run;             ///< compares whole plans; may be empty
    RememberChoice remember;  ///< a store for the decisions of `run`; may be empty
    /// Schedules of earlier plans with the same Scheduling. New ones are added. Null: only those of one plan are kept.
    std::shared_ptr<Schedules> schedules;
    /// The cache of schedules that took long to find (schedules.h); null: none.
    std::shared_ptr<const CodeCache> kept;
};

/// OrchestrateOptions::schedules, or a new object if it is null.
std::shared_ptr<Schedules> schedules_of(const OrchestrateOptions& options);

}  // namespace tilewright
