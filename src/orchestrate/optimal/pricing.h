#pragma once
// Candidates' costs by measurement: which are measured, how often, and what stands for the rest until then.

#include <map>
#include <vector>

#include "orchestrate/optimal/kernel_maker.h"
#include "orchestrate/optimal/piece.h"

namespace tilewright::optimal {

/// Brings all searches to their ends, with measured costs.
///
/// First the kernels of the plans to begin with are measured: the plan found is then no slower than the greedy rule's,
/// by measurement. They also say how the model errs: for each kind of kernel the lowest quarter of measured over
/// estimated seconds. An estimate times that (and at least the machine's limit) is what is said of the others, low, as
/// lazy profiling wants it (lazy.h): exact as far as no kernel undercuts that, and OrchestrationReport::undercut counts
/// those that do.
///
/// What the database remembers of the others counts as measured before the first solution, so that a compile goes on
/// from where one before it was, and on a full database one or two solutions do.
///
/// Then every search solves and says what it wants to know; all that is measured, once for equal kernels of all
/// pieces, the dearest of it where not all of it may be; and again, until none wants anything or
/// OptimalOptions::most_measured of `candidates` are: those of all pieces, however many of these a search stands for.
/// On a full database nothing is run.
void measure_lazily(std::vector<PieceSearch*> searches, size_t candidates, const KernelMaker& maker,
                    Schedules& schedules, const OrchestrateOptions& options, OrchestrationReport& report);

}  // namespace tilewright::optimal
