#pragma once
// Optimal orchestration of a program: its kernels, their outputs and layouts (Korch §4).
//
//     greedy       kernels and layouts of greedy orchestration (greedy.h): the initial plan
//     pieces       narrow cuts (partition.h); a primitive that is no tensor expression is a kernel and a cut. Pieces
//     that
//                  differ only in weights and names are solved once
//     candidates   connected convex sets (sets whose nodes share an input but no edge are not candidates) with their
//                  output sets (states.h, candidates.h), chains of products (chain_sets.h) and greedy kernels, in
//                  layouts (piece.h), if each is one kernel by the usual fusion (kernel_maker.h); conversions between
//                  layouts
//     choice       the binary program (blp.h), with estimated or measured costs (lazy.h)
//
// Every value has a row-major layout and, if greedy orchestration chooses another one, that alternative layout. A value
// that crosses a cut has the layout of the greedy plan. The greedy plan is therefore one of the plans, except for
// kernels that a cut splits, and the selected plan costs no more by the costs of the choice.

#include "orchestrate/fusion_limits.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/optimal/greedy.h"
#include "orchestrate/optimal/options.h"
#include "orchestrate/options.h"
#include "orchestrate/schedules.h"

namespace tilewright::optimal {

/// Groups a program by optimal orchestration. `limits`: for kernels as in greedy orchestration. Adds to `report`.
///
/// With measured costs and `run`, the plan is compared with the greedy kernels in whole runs. A kernel's time alone
/// differs from its time between others, and a selection from hundreds of measurements prefers those with lucky errors.
/// A piece keeps greedy kernels unless its own are faster by a margin; equal pieces are decided together. The resulting
/// plan must be faster as a whole by a margin in each of two comparisons. Library kernels are accepted likewise; after
/// a refusal the binary programs are solved again. The decisions are kept in the tuning database. PieceReport::emitted
/// is the cost of the result by the costs of the choice.
Grouped group_optimally(const Program& program, const GreedyGroups& greedy, const OrchestrateOptions& options,
                        Schedules& schedules, const FusionLimits& limits, OrchestrationReport& report,
                        const RunGrouped& run = {});

}  // namespace tilewright::optimal
