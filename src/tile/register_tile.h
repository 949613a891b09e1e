#pragma once
// What code a register tile becomes where its size alone does not say it: known to the generator, which makes it, and
// to the model, which says what it costs.

#include <cstdint>
#include <optional>
#include <vector>

#include "tile/annotations.h"

namespace tilewright {

/// Sizes, ascending, that a register tile's code is made for where only the run knows how many of its `tile` points
/// are left; the least that holds them computes them. Few are met exactly, since a model's batch is often small and no
/// larger tile comes then; further up a fifth or less is computed in vain.
///     13 -> 1, 2, 3, 4, 5, 6, 8, 10, 13;   4 -> 1, 2, 3, 4;   3 -> 3
std::vector<int64_t> rest_rungs(int64_t tile);

/// Accumulators that hide the latency of multiply-adds: one that needs the result of the last waits four cycles for it,
/// in which eight could begin. A single row of two vectors takes four steps of the innermost loop at a time. One, where
/// the loop has few `steps`: nothing, where their number is dynamic.
Accumulators accumulators_for(std::optional<int64_t> steps);
/// How many of them each sum has in a tile of `results` registers.
int64_t sum_chains(int64_t results, std::optional<int64_t> steps);

}  // namespace tilewright
