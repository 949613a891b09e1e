#pragma once
// Optimal orchestration of a program: which primitives become kernels, with which outputs, in which layouts (Korch §4).
//
//     greedy       the greedy rule's kernels and layouts (greedy.h): a plan to begin with
//     pieces       narrow cuts (partition.h); what is no tensor expression is a kernel of its own and cut at. Pieces
//                  that differ in weights and names alone are solved once
//     candidates   connected convex sets (joined by edges; sets whose nodes share an input and no edge are not
//                  candidates) and their output sets (states.h, candidates.h), chains of products
//                  (chain_sets.h) and the greedy rule's kernels, in layouts (piece.h), as far as each is one kernel by
//                  the same fusion as everywhere else (kernel_maker.h); conversions between layouts
//     choice       the binary program (blp.h), with the model's costs or with measured ones (lazy.h)
//
// Every value has its row-major layout and, where the greedy rule gives it another one, that. A value that crosses a
// cut is there as the greedy rule has it. So the greedy rule's plan is one of those to choose from, but for kernels
// that a cut goes through, and no plan costs more than it by the costs of the choice.

#include "orchestrate/fusion_limits.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/optimal/greedy.h"
#include "orchestrate/optimal/options.h"
#include "orchestrate/options.h"
#include "orchestrate/schedules.h"

namespace tilewright::optimal {

/// `limits` hold for kernels as they do for the greedy rule. Adds to `report`.
///
/// Where costs are measured and `run` is there, the plan is held against the greedy rule's kernels in whole runs: what
/// a kernel takes alone is not what it takes between others, and of hundreds of measurements those are chosen that were
/// lucky. Each piece keeps the greedy rule's kernels unless its own take less there by a margin, all pieces that are
/// solved as one together; and the plan that this gives must be the faster one as a whole by a margin, in each of two
/// comparisons. Kernels of a library are accepted likewise; after a refusal the binary programs are solved again. What
/// came of it is remembered. PieceReport::emitted is what is left of it by the costs that the choice went by.
Grouped group_optimally(const Program& program, const GreedyGroups& greedy, const OrchestrateOptions& options,
                        Schedules& schedules, const FusionLimits& limits, OrchestrationReport& report,
                        const RunGrouped& run = {});

}  // namespace tilewright::optimal
