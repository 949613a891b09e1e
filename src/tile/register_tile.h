#pragma once
// Derived annotations that depend on the register tile alone (tile/annotate, cost).

#include <cstdint>
#include <optional>
#include <vector>

#include "tile/annotations.h"

namespace tilewright {

/// Sizes of the tail specialisation of a register tile of `tile` points, ascending (Tail::sizes). Tails of up to
/// 16 points have code of their exact size: clamped rows have a pointer each, and a second, smaller tile reads all
/// weights again (BERT-base at 13 tokens, Zen 5: 11.2 ms, with 8 and 5 rows 15.6). For larger ones at most a fifth of
/// the points are redundant.
///     4 -> 1, 2, 3, 4;   24 -> 1, 2, ..., 16, 20, 24
std::vector<int64_t> tail_sizes(int64_t tile);

/// Returns how many accumulators hide the latency of multiply-adds: a dependent multiply-add waits four cycles, in
/// which eight others can start. A single row of two vectors therefore takes four steps of the innermost loop at a
/// time. One accumulator if the loop has few `steps`; no value of `steps` means a dynamic number.
Accumulators accumulators_for(std::optional<int64_t> steps);

}  // namespace tilewright
