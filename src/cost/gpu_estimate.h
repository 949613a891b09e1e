#pragma once
// What a schedule costs on a GPU before it is run: MCFuser's model (§IV, equations 2 to 5) with the data sheet's rates.
//
// A block moves what its Loads copy and what its Computes read from memory themselves, once for every trip of the loops
// around them (equation 3); arithmetic runs at the peak rate of its units on whole tiles, the tail of a tile included
// (equation 4); both are scaled by (blocks + SMs) / blocks (equation 5). Beyond the paper: what is moved again comes
// from the second-level cache, operands of register tiles come through shared memory, a block's steps wait for memory
// unless a pipelined loop has prefetched, and an SM that holds few warps is not kept busy. Not measured on a GPU yet:
// it ranks.

#include <optional>
#include <span>

#include "cost/gpu_copy.h"
#include "cost/gpu_target.h"
#include "cost/stage_model.h"
#include "tile/tile.h"

namespace tilewright {

struct GpuEstimate {
    double seconds = 0;
    double compute_seconds = 0;  ///< of all SMs together, as the following
    double memory_seconds = 0;
    double shared_seconds = 0;
    double wait_seconds = 0;  ///< of one block after the other on an SM
    double blocks = 1;
    double registers = 32;  ///< of a thread
};
/// Every statement of the tree. `bindings`: what symbols are; others are assumed.
GpuEstimate gpu_estimate(const TileProgram& program, const GpuTarget& target, const Bindings& bindings = {});

/// What a kernel needs of a GPU. The model is one of this alone: schedules under construction have no tree yet.
struct GpuWork {
    double compute_seconds = 0;  ///< of all SMs together
    double memory_bytes = 0;     ///< that blocks move from and to memory
    double once_bytes = 0;       ///< of inputs and outputs
    double shared_bytes = 0;     ///< that threads read from shared memory
    double blocks = 1;
    double waits = 1;         ///< for memory, of a block, one behind the other
    double drains = 0;        ///< times that matrix units have done all that a block has begun
    int threads = 32;         ///< of a block
    double registers = 32;    ///< of a thread, of 32 bits
    int64_t block_bytes = 0;  ///< of shared memory, of a block
};
GpuEstimate gpu_estimate(const GpuWork& work, const GpuTarget& target);
/// How many blocks of it an SM holds; 1 at least.
int blocks_at_a_time(const GpuWork& work, const GpuTarget& target);

/// A Compute with a tile (points per axis) at a time, `trips` times in all: adds its arithmetic, what its register
/// tiles read from shared memory, and its threads and registers. Threads that a warp has no tiles for cost
/// what others do. What operands take from memory is not in it. `copies`: of its operands.
void add_compute(GpuWork& work, const StageModel& stage, const Micro& micro, std::vector<int64_t> tile, double trips,
                 std::span<const GpuCopy> copies, const GpuTarget& target);
/// Of that, the registers of a thread for its results, and for the operands of one step.
struct GpuRegisters {
    double results = 1, operands = 0;
};
GpuRegisters gpu_registers(const StageModel& stage, const Micro& micro);
inline constexpr double kGpuOtherRegisters = 32;  ///< of a thread, for addresses and counters

/// Bytes of shared memory that a block of this tile program needs if nothing has to make room (tile/gpu_memory.h).
/// Nothing where a box has no constant bound.
std::optional<int64_t> shared_bytes(const TileProgram& program);

/// Operations at the fastest peak rate there is, or inputs and outputs once through memory. Seconds.
double gpu_lower_bound(const Program& stages, const GpuTarget& target, const Bindings& bindings = {});

/// Multiply-adds a second, times two, of a product on matrix instructions, or of f32 on the ordinary cores.
double gpu_flops(const GpuTarget& target, const std::optional<MatrixUnit>& unit);

/// Seconds that so many bytes take one SM from the second-level cache or memory, or from its shared memory: what
/// Gensor's formula 2 compares.
double gpu_memory_seconds(const GpuTarget& target, double bytes);
double gpu_shared_seconds(const GpuTarget& target, double bytes);

}  // namespace tilewright
