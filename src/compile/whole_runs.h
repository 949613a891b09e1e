#pragma once
// Comparison of plans by whole runs, which say more than times of single kernels on operands of assumed sizes.

#include <memory>
#include <vector>

#include "compile/options.h"
#include "model/compiled_model.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/options.h"
#include "orchestrate/plan.h"

namespace tilewright {

/// Runs plans of one model on CompileOptions::inputs, in turns, and returns medians. Refers to both arguments. Without
/// `steps`, steps are not timed, and short runs are read several at a time.
RunPlans plan_runner(const CompiledModel::Impl& model, const CompileOptions& options, bool steps = true);

/// The share of its time that a plan's whole runs must save to replace the plan by estimates.
constexpr double kWholeRunGain = 0.02;

/// Returns the times of groupings of one program, from the times of their plans' steps, which `run` measures.
std::vector<GroupedTimes> run_grouped(std::vector<Plan> plans, const KernelSet& kernels, const RunPlans& run);

/// Keeps the model's plan, made from measured kernels, if its whole runs are faster by a margin than those of the plan
/// of `program` by estimates; else replaces it by the latter. The choice is kept in the tuning database.
void keep_faster_plan(CompiledModel::Impl& model, Program program, const CompileOptions& options,
                      const RememberChoice& remember);

}  // namespace tilewright
