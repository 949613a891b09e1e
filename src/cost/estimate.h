#pragma once
// What a schedule costs before it is run: MCFuser's analytical model (§IV, equations 2 to 5) on a machine with caches.
//
// The paper's model moves every tile between memory and a block's shared memory, adds arithmetic at the peak rate, and
// multiplies by (blocks + SMs) / blocks. Here there are several levels. Each has a share of the bytes (equation 3 once
// per level: what a tile touches times the trips of the loops around the point from where on it fits), arithmetic runs
// at the rate of its register tile (equation 4 with P a function of the tile), what can overlap overlaps, and instead
// of equation 5 the tasks of the slowest thread are counted: a CPU's cores do not share a core's units.

#include <optional>
#include <span>
#include <vector>

#include "cost/cycle_rates.h"
#include "cost/stage_model.h"
#include "cost/target.h"
#include "tile/tile.h"

namespace tilewright {

/// A Compute with all loops around it and its micro-kernel.
struct Nest {
    struct Loop {
        size_t axis = 0;
        int64_t step = 1;
    };
    std::vector<Loop> loops;  ///< of the stage's axes, outermost first, without the micro-kernel's own
    size_t parallel = 0;      ///< how many of them are the grid
    const Micro* micro = nullptr;
    std::vector<size_t> home;  ///< per operand: inside how many of the loops its buffer lives; empty: memory
    double entry_cycles = 40;  ///< until the micro-kernel has begun, and to come back from it
};

/// An axis of a grid: its tasks take `step` points each, the last one what is left.
struct TaskAxis {
    int64_t extent = 1, step = 1;
};
/// How many tasks they make, axes of no extent none.
double task_count(std::span<const TaskAxis> grid);
/// What part of a grid's points the slowest of `threads` computes, each taking the next task when it is done; at least
/// 1 / threads. The tasks of the grid go row by row. 197 rows by 22 on two threads: nine tasks, 110 / 197.
double slowest_share(std::span<const TaskAxis> grid, int threads);

struct NestCost {
    double compute_cycles = 0;  ///< of one thread doing everything
    std::vector<double> bytes;  ///< moved into each cache level
    std::vector<double> jumps;  ///< of the streams of those bytes to another page
    double memory_cycles = 0;   ///< the slowest level's
    double cycles = 0;          ///< of one thread doing everything, what overlaps overlapping
    double tasks = 1;
    double slowest = 1;                             ///< slowest_share() of the grid
    double seconds(const CycleRates& rates) const;  ///< with all workers, of the rates it was computed for
};
/// `compute`: its compute_cycles, where they are known: they do not depend on the loops' order.
NestCost nest_cost(const StageModel& stage, const Nest& nest, const CycleRates& rates,
                   std::optional<double> compute = {});

/// Cycles of one register tile's whole reduction: `tile` vectors (lanes along the vector axis) or points along each
/// axis, spatial ones; `steps` reduction steps. Without the epilogue. `clamped`: a dynamic tail, whose rows
/// share no loads. Exposed for tests.
double tile_cycles(const StageModel& stage, const Micro& micro, std::span<const int64_t> tile, double steps,
                   const CycleRates& rates, bool clamped = false);

/// What cannot be undercut: operations at the peak rate, or inputs and outputs once through memory, of a kernel whose
/// operands are not in a cache; with `warm`, only what exceeds the largest cache counts. Seconds.
double lower_bound(const Program& stages, const Target& target, const Bindings& bindings, bool warm = false);

struct Estimate {
    double seconds = 0;
    double compute_seconds = 0;
    double memory_seconds = 0;
    double scratch_bytes = 0;
    double tasks = 1;
};
/// Every statement of the tree. `bindings`: what symbols are; others are assumed.
Estimate estimate(const TileProgram& program, const Target& target, const Bindings& bindings = {});

}  // namespace tilewright
