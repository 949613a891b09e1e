#pragma once
// Derived annotations that depend on the register tile alone (tile/annotate, cost).

#include <cstdint>
#include <optional>
#include <vector>

#include "program/program.h"
#include "tile/annotations.h"

namespace tilewright {

/// Sizes of the tail specialisation of a register tile of `tile` points, ascending (Tail::sizes). Tails of up to
/// 16 points have code of their exact size: clamped rows have a pointer each, and a second, smaller tile reads all
/// weights again (BERT-base at 13 tokens, Zen 5: 11.2 ms, with 8 and 5 rows 15.6). For larger ones at most a fifth of
/// the points are redundant.
///     4 -> 1, 2, 3, 4;   24 -> 1, 2, ..., 16, 20, 24
std::vector<int64_t> tail_sizes(int64_t tile);
/// Likewise where what a second tile reads again is near: half of the sizes, and a third of the code. Longer tails are
/// two tiles.
///     4 -> 1, 2;   13 -> 1, 2, ..., 7
std::vector<int64_t> half_tail_sizes(int64_t tile);

/// Returns how many points the tiles of a tail of `points` have, all but the last (Tail::sizes, of which the largest is
/// `largest`): tails that two tiles can hold become two halves, others whole tiles and what is left.
///     13 points, largest 7 -> 7 and 6;   largest 4 -> 4, 4, 4 and 1
int64_t tail_step(int64_t points, int64_t largest);

/// Whether a result that is no reduction's addresses the axis in blocks: k in y[k // 2, n, k % 2]. In code for whole
/// register tiles, positions in a block are constants. A cut would separate points of one vector, and so would a tail
/// that starts inside of a tile: it is one tile (Tail::sizes ends with the tile).
bool in_blocks(const TensorExpr& e, size_t axis);
/// Whether the result has the points of the axis between neighbouring lanes of the vector axis, as y[4 * w + c] has the
/// four of c between those of w. Vectors of all of them are then stored together.
bool between_lanes(const TensorExpr& e, size_t vector_axis, size_t axis);

/// Whether every tile of the axis, its tail's included, starts at a multiple of `tile` after the range's start.
bool whole_tails(const Annotations& a, size_t axis, int64_t tile);

/// Returns how many accumulators hide the latency of multiply-adds: a dependent multiply-add waits four cycles, in
/// which eight others can start. A single row of two vectors therefore takes four steps of the innermost loop at a
/// time. One accumulator if the loop has few `steps`; no value of `steps` means a dynamic number.
Accumulators accumulators_for(std::optional<int64_t> steps);

}  // namespace tilewright
