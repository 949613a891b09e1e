#pragma once
// Random legal schedules, for property tests: whatever computes a tile program must give what its stages give, however
// unwise the tiles.

#include <cstdint>
#include <functional>

#include "tile/tile.h"

namespace tilewright {

struct RandomScheduleOptions {
    int64_t most_lanes = 16;            ///< of a vector; lanes are powers of two
    int64_t most_registers = 64;        ///< points of a register tile (the code unrolled)
    int64_t most_tile_bytes = 1 << 16;  ///< of one buffer
    bool global_padding = true;         ///< where shapes are whole tiles
    bool unfolded_loads = true;         ///< overlapped tiles among the layouts of Loads
};

/// A schedule of `stages` (tensor expressions alone, values in topological order) decided by `seed`: which axes are
/// shared, loops and their steps, the grid, Loads and Stores and their layouts and padding, micro-kernels. It passes
/// `verify`. Where no tree but Computes one after the other is found, that is what it is (and plan_buffers throws
/// InternalError if a value between stages has no constant size).
TileProgram random_schedule(Program stages, uint64_t seed, const RandomScheduleOptions& options = {});

/// A simpler program that still passes `verify` and for which `fails` still holds: loops, Loads and Stores taken out,
/// layouts and register tiles dropped, one after the other until none can go.
TileProgram shrink(TileProgram program, const std::function<bool(const TileProgram&)>& fails);

}  // namespace tilewright
