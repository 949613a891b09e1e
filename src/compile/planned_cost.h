#pragma once
// What a program would take, planned as models are by default: it evaluates rewrites.

#include <memory>
#include <string>

#include "orchestrate/options.h"
#include "orchestrate/schedules.h"
#include "program/rewrite/search.h"
#include "program/transform/fold.h"

namespace tilewright {

/// Seconds of each primitive of a program: of the greedy rule's kernels (fused, laid out, scheduled, launched) its
/// share, in proportion to its operations. What `folding` will compute beforehand costs nothing; what is no
/// tensor expression, and the bodies of control flow, count nothing. All of them together are what the cost model says
/// of the plan that `orchestrate` makes of the folded program.
///
/// Kernels are scheduled once, however many programs have them; OrchestrateOptions::schedules shares them with the
/// plan of the selected program. Scheduling must know a machine, and measure nothing.
RewriteEvaluator planned_cost(OrchestrateOptions options, FoldOptions folding = {});
/// All that those seconds depend on but the program, `folding` and the build of the compiler
/// (RewriteSearch::evaluator_key).
std::string planned_cost_text(const OrchestrateOptions& options);

}  // namespace tilewright
