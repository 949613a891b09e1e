#pragma once
// Optimal orchestration of a program: which primitives become kernels, with which outputs (Korch §4).
//
//     pieces       narrow cuts (partition.h); what is no tensor expression is a kernel of its own and cut at
//     candidates   connected convex sets and their output sets (states.h, candidates.h), as far as they are one kernel
//                  by the same fusion as everywhere else (kernel_maker.h), and the greedy rule's kernels
//     choice       the binary program, begun with the greedy rule's kernels, so that no plan is worse than those by the
//                  costs that it goes by (blp.h, lazy.h)
//     layouts      for the fused program as a whole, as after greedy fusion
//
// Layouts come after the choice. A kernel's cost is the one with the layouts that it would choose alone; where the
// whole program's take a kernel apart, its parts are kernels.

#include "orchestrate/optimal/options.h"
#include "orchestrate/schedules.h"

namespace tilewright::optimal {

/// `limits` hold for kernels as they do for the greedy rule. Costs are measured (lazily) where `schedules` may, else
/// the model's. Adds to `report`.
Grouped group_optimally(const Program& program, const OrchestrateOptions& options, Schedules& schedules,
                        const FusionLimits& limits, OrchestrationReport& report);

}  // namespace tilewright::optimal
