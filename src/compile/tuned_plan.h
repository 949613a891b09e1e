#pragma once
// Plans that `tilewright tune` has found, in the tuning database: one record for each model, with the options of its
// planning. A record has all that its plan depends on beside these, so that tuning another model does not change it.

#include <optional>
#include <string>

#include "compile/options.h"
#include "orchestrate/options.h"
#include "orchestrate/plan.h"
#include "orchestrate/tuned_schedules.h"
#include "tune/database.h"

namespace tilewright {

struct TunedPlan {
    TunedSchedules schedules;
    std::string layouts;            ///< joint::print() of their decisions; empty: as without tuning
    std::string hash;               ///< plan_hash() of the plan with these schedules
    std::string proposed;           ///< the same with all that were faster alone, also those dropped in whole runs
    std::string inputs;             ///< shapes of the inputs on which whole runs were compared
    double initial = 0, tuned = 0;  ///< seconds of a whole run of the default plan, and of this one
    bool kept = false;              ///< it is faster by a margin; otherwise the default plan is used
};

/// `program`: before it is planned.
ChoiceKey tuned_plan_key(const Program& program, const OrchestrateOptions& planning);

/// Of all that a plan runs.
std::string plan_hash(const Plan& plan, const KernelSet& kernels);

/// Nothing if there is no record, or one that cannot be read.
std::optional<TunedPlan> find_tuned_plan(const TuningDatabase& database, const ChoiceKey& key);
void keep_tuned_plan(TuningDatabase& database, const ChoiceKey& key, const TunedPlan& plan);

/// Decisions about layouts that a tuning has made, before it tunes kernels in them: joint::print(), or empty for those
/// without tuning. `key`: of the tuned plan. Nothing if there is no record.
std::optional<std::string> find_tuned_layouts(const TuningDatabase& database, const ChoiceKey& key);
void keep_tuned_layouts(TuningDatabase& database, const ChoiceKey& key, const std::string& layouts);

/// Options of planning with these layouts; false, and no change, where the text is no print of decisions.
bool use_tuned_layouts(OrchestrateOptions& planning, const std::string& layouts);

/// The tuned plan in the database of the options that is to be used: nothing, with a note, if none is known, and
/// nothing where the default plan is as fast.
std::optional<TunedPlan> confirmed_plan(const CompileOptions& options, const ChoiceKey& key);

/// A text that differs whenever a tuned plan for this machine does.
std::string tuned_plans_text(const TuningDatabase& database);

}  // namespace tilewright
