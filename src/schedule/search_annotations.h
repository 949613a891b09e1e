#pragma once
// The search over annotations (tile/annotations.h) of a schedule.

#include "schedule/kernel_costs.h"
#include "tile/annotate/annotate.h"

namespace tilewright {

/// The schedule with the fastest annotations found by coordinate descent: for one Compute after the other, all
/// annotation_variants() are measured beside the schedule found so far, and the fastest is taken; on a GPU likewise
/// for its Loads and Stores. Requires measures_schedules().
TileProgram search_annotations(TileProgram program, const KernelCosts& costs, const AnnotateOptions& options);

}  // namespace tilewright
