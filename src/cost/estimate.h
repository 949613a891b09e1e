#pragma once
// The estimated cost of a schedule: MCFuser's analytical model (§IV, equations 2 to 5) on a machine with caches.
//
// The paper's model moves every tile between memory and a block's shared memory, adds arithmetic at the peak rate, and
// multiplies by (blocks + SMs) / blocks. This model differs in four points. There are several cache levels, and
// equation 3 gives the bytes of each: the footprint of the loop nest that fits, times the trips of the loops around it.
// Arithmetic runs at the rate of its register tile (equation 4 with P a function of the tile). Arithmetic and memory
// traffic overlap. The tasks of the slowest thread replace equation 5, since CPU cores share no execution units.

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
    std::vector<Loop> loops;  ///< over the stage's axes, outermost first, without the micro-kernel's own
    size_t parallel = 0;      ///< the number of outer loops that form the grid
    const Micro* micro = nullptr;
    std::vector<size_t> home;  ///< per operand: the number of loops around its buffer; empty: all are in memory
    double entry_cycles = 40;  ///< overhead of a call of the micro-kernel
};

/// An axis of a grid. A task takes `step` points, the last one the tail.
struct TaskAxis {
    int64_t extent = 1, step = 1;
};
/// The number of tasks of the grid; 0 where an extent is 0.
double task_count(std::span<const TaskAxis> grid);
/// The share of a grid's points that the slowest of `threads` computes, at least 1 / threads. A thread that finishes
/// takes the next task; tasks are ordered row by row. 197 rows by 22 on two threads: nine tasks, 110 / 197.
double slowest_share(std::span<const TaskAxis> grid, int threads);

/// The cycles for which a contiguous stream of `bytes` from memory waits when it begins: a latency and a half, until
/// prefetchers run ahead; a share of that where it is so short that several begin together.
double stream_start_cycles(double bytes, const CycleRates& rates);

struct NestCost {
    double compute_cycles = 0;  ///< on a single thread
    std::vector<double> bytes;  ///< moved into each cache level
    std::vector<double> jumps;  ///< page changes of the streams of those bytes
    double memory_cycles = 0;   ///< of the slowest level
    double cycles = 0;          ///< on a single thread, with arithmetic and traffic overlapping
    double tasks = 1;
    double slowest = 1;                             ///< slowest_share() of the grid
    double seconds(const CycleRates& rates) const;  ///< on all workers of `rates`, those of nest_cost()
};
/// The cost of one nest. `compute`: its compute_cycles where they are known already; they do not depend on the loop
/// order.
NestCost nest_cost(const StageModel& stage, const Nest& nest, const CycleRates& rates,
                   std::optional<double> compute = {});

/// Cycles of the whole reduction of one register tile, without the epilogue. `tile`: vectors along the vector axis,
/// points along the other spatial axes. `steps`: reduction steps. `clamped`: a dynamic tail, whose rows share no loads.
/// Exposed for tests.
double tile_cycles(const StageModel& stage, const Micro& micro, std::span<const int64_t> tile, double steps,
                   const CycleRates& rates, bool clamped = false);

/// The bytes of the larger factor's elements; of a stage that is no product, 4.
int64_t factor_bytes(const StageModel& stage);
/// How many products of such factors the target's fastest instructions add while a multiply-add of f32 adds one; at
/// least 1.
double matrix_advantage(const Target& target, int64_t factor_bytes);

/// A lower bound of a kernel's time in seconds: operations at the peak rate, or inputs and outputs once through memory.
/// `warm`: operands start in the caches, so bytes count only if they exceed the largest cache.
double lower_bound(const Program& stages, const Target& target, const Bindings& bindings, bool warm = false);

struct Estimate {
    double seconds = 0;
    double compute_seconds = 0;
    double memory_seconds = 0;
    double scratch_bytes = 0;
    double tasks = 1;
};
/// The sum over all statements of the tree. `bindings`: sizes of symbols; sizes of other symbols are assumed.
Estimate estimate(const TileProgram& program, const Target& target, const Bindings& bindings = {});
/// Likewise, with the models of the program's stages, whose sizes `bindings` must have.
Estimate estimate(const TileProgram& program, const Target& target, const StageModels& models,
                  const Bindings& bindings = {});

}  // namespace tilewright
