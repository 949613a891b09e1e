#pragma once
// Plans compared by running them: the times of kernels alone, on operands of assumed sizes, say less than whole runs.

#include <memory>
#include <vector>

#include "compile/options.h"
#include "model/compiled_model.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/options.h"
#include "orchestrate/plan.h"

namespace tilewright {

/// Runs plans of one model on CompileOptions::inputs, in turns; medians. Refers to both arguments.
RunPlans plan_runner(const CompiledModel::Impl& model, const CompileOptions& options);

/// Times of groupings of one program, from those of the steps of their plans, which `run` takes.
std::vector<GroupedTimes> run_grouped(std::vector<Plan> plans, const KernelSet& kernels, const RunPlans& run);

/// The model's plan, made from measured kernels, stays if its whole runs are faster by a margin than those of the plan
/// of `program` by estimates; else the latter takes its place. The choice is remembered.
void keep_faster_plan(CompiledModel::Impl& model, Program program, const CompileOptions& options,
                      const RememberChoice& remember);

}  // namespace tilewright
