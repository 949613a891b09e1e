#pragma once
// Random legal schedules for property tests: the result of a tile program must equal that of its stages for every legal
// schedule.

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

/// Returns a schedule of `stages` (tensor expressions alone, values in topological order) that passes `verify`. `seed`
/// determines which axes are shared, the loops and their steps, the grid, Loads and Stores with their layouts and
/// padding, and the micro-kernels. If no loop tree is found, the schedule is a sequence of Computes; then plan_buffers
/// throws InternalError if a value between stages has no constant size.
TileProgram random_schedule(Program stages, uint64_t seed, const RandomScheduleOptions& options = {});

/// Returns a simpler program that passes `verify` and for which `fails` holds: loops, Loads, Stores, layouts and
/// register tiles are removed one at a time until none can be removed.
TileProgram shrink(TileProgram program, const std::function<bool(const TileProgram&)>& fails);

}  // namespace tilewright
