#pragma once
// The estimated cost of a program under greedy orchestration: it evaluates rewrites, and layouts on a GPU's ordinary
// cores.

#include <memory>
#include <string>

#include "compile/options.h"
#include "orchestrate/options.h"
#include "orchestrate/schedules.h"
#include "program/rewrite/search.h"
#include "program/transform/fold.h"

namespace tilewright {

struct PipelineOptions;

/// How kernels are scheduled while programs are evaluated: as in the plan, except that nothing is measured and
/// everything is estimated.
OrchestrateOptions evaluation_options(CompileOptions options);
/// Whether kernels that are scheduled to evaluate rewrites are those of the plan.
bool evaluated_as_planned(const CompileOptions& options);
/// The search for rewrites of this program (PipelineOptions::rewrite, which must be set), with an evaluator.
RewriteSearch rewrite_search(const PipelineOptions& options, const Program& program);
/// Whether the greedy plan with layouts, conversions at its ends included, has a lower estimate than the row-major one.
/// Bodies of control flow count once.
bool layouts_pay(const Program& program, const CompileOptions& options);

/// Returns an evaluator of the seconds of each primitive: its share of the greedily orchestrated kernels (fused, laid
/// out, scheduled, launched), in proportion to its operations. Primitives that `folding` computes at compile time cost
/// nothing; opaque operators and bodies of control flow are not counted. The total is the cost model's estimate of the
/// plan that `orchestrate` makes of the folded program.
///
/// Each kernel is scheduled once, however many programs contain it; OrchestrateOptions::schedules shares the schedules
/// with the plan of the selected program. The scheduling options must contain a machine and must not measure.
/// `constants`: Program::constants_at of the whole program.
RewriteEvaluator planned_cost(OrchestrateOptions options, FoldOptions folding = {},
                              Residence constants = Residence::Near);
/// Returns Program::constants_at for a whole program on a CPU: the nearest level that holds all of its constants. Near
/// on a GPU.
Residence constants_at(const Program& program, const Target& target);

/// Returns, as text, everything that these seconds depend on except the program, the other arguments and the build of
/// the compiler (RewriteSearch::evaluator_key).
std::string planned_cost_text(const OrchestrateOptions& options);

}  // namespace tilewright
