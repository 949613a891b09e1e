#pragma once
// Derived annotations that depend on the register tile alone (tile/annotate, cost).

#include <cstdint>
#include <optional>
#include <vector>

#include "tile/annotations.h"

namespace tilewright {

/// Sizes of the tail specialisation of a register tile of `tile` points, ascending (Tail::sizes). Small tails have code
/// of their exact size, since the batch of a model is often small. For larger ones at most a fifth of the points are
/// redundant.
///     13 -> 1, 2, 3, 4, 5, 6, 8, 10, 13;   4 -> 1, 2, 3, 4
std::vector<int64_t> tail_sizes(int64_t tile);

/// Returns how many accumulators hide the latency of multiply-adds: a dependent multiply-add waits four cycles, in
/// which eight others can start. A single row of two vectors therefore takes four steps of the innermost loop at a
/// time. One accumulator if the loop has few `steps`; no value of `steps` means a dynamic number.
Accumulators accumulators_for(std::optional<int64_t> steps);

}  // namespace tilewright
