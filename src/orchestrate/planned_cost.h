#pragma once
// What a program would take, planned as models are by default: the judge of rewrites.

#include <memory>

#include "orchestrate/schedules.h"
#include "program/rewrite/search.h"

namespace tilewright {

/// Seconds of the greedy rule's kernels, by the cost model: fused, laid out, scheduled, with their launches. What folds
/// costs nothing; layouts at the program's ends are free, as those of a part of a model; what is no tensor expression,
/// and the bodies of control flow, count nothing. Kernels are scheduled once, however many programs have them.
RewriteCost planned_cost(OrchestrateOptions options);

}  // namespace tilewright
