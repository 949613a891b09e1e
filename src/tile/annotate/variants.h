#pragma once
// The neighbours of a stage's annotations, for searches.

#include <vector>

#include "tile/annotate/annotate.h"

namespace tilewright {

/// `given` with one annotation set to another legal value than the one that it has, or that `annotate` derives:
///     accumulators 4 in_flight 8  ->  accumulators 1;  2;  4;  8
///     prefetch 1 panel bytes 8192 ->  prefetch never;  ... bytes 4096;  ... bytes 16384
/// Other annotations stay as `given`: those that are absent follow the new value when they are derived.
std::vector<Annotations> annotation_variants(const Annotations& given, const StageSite& site,
                                             const AnnotateOptions& options);

}  // namespace tilewright
