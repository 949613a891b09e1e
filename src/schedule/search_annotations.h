#pragma once
// The search over annotations (tile/annotations.h) of a schedule.

#include <vector>

#include "schedule/kernel_costs.h"
#include "tile/annotate/annotate.h"

namespace tilewright {

/// For each Compute of a CPU's schedule, in order, the schedules that differ in one of its annotations
/// (annotation_variants).
std::vector<std::vector<TileProgram>> annotation_neighbours(const TileProgram& program, const AnnotateOptions& options);

/// The schedule with the fastest annotations by coordinate descent. For one Compute after the other, and on a GPU for
/// one Load and Store after the other, all annotation_variants() are measured together with the best schedule so far,
/// and the fastest is kept. Requires measures_schedules().
TileProgram search_annotations(TileProgram program, const KernelCosts& costs, const AnnotateOptions& options);

}  // namespace tilewright
