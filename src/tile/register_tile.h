#pragma once
// Derived annotations that depend on the register tile alone (tile/annotate, cost).

#include <cstdint>
#include <optional>
#include <vector>

#include "tile/annotations.h"

namespace tilewright {

/// Sizes of the tail specialisation of a register tile of `tile` points, ascending (Tail::sizes). Small tails have code
/// of their exact size, since the batch of a model is often small; of larger ones a fifth or less is redundant.
///     13 -> 1, 2, 3, 4, 5, 6, 8, 10, 13;   4 -> 1, 2, 3, 4;   3 -> 3
std::vector<int64_t> tail_sizes(int64_t tile);

/// Accumulators that hide the latency of multiply-adds: one that needs the result of the last waits four cycles for it,
/// in which eight could begin. A single row of two vectors takes four steps of the innermost loop at a time. One, where
/// the loop has few `steps`: nothing, where their number is dynamic.
Accumulators accumulators_for(std::optional<int64_t> steps);

}  // namespace tilewright
