#pragma once
// The estimated cost of a schedule on a GPU: MCFuser's model (§IV, equations 2 to 5) with the rates that kernels
// reach (GpuRates).
//
// A block moves the operands of its Loads, and what its Computes read from memory directly, once for every trip of the
// surrounding loops (equation 3). Arithmetic runs at the rate of its units on whole tiles, tails included (equation 4).
// In place of equation 5's factor (blocks + SMs) / blocks, the SM with most blocks decides, because the copies of an SM
// are limited by its own port to the L2. Beyond the paper, repeated reads are served by the L2, operands of register
// tiles are read from shared memory, every step of a block waits for memory unless a pipelined loop has prefetched, and
// an SM with few warps is not fully used. Where several statements, some of them products, wait for each other,
// instructions beside those of matrix units are a resource of their own (gpu_slots.h), and warps that have no part of a
// statement wait for the others. Where blocks have parts of sums, each writes its own, and behind a counter the last
// one of a tile reads all of them while its other blocks are through. The model ranks schedules.

#include <optional>
#include <span>

#include "cost/gpu_copy.h"
#include "cost/gpu_target.h"
#include "cost/stage_model.h"
#include "tile/tile.h"

namespace tilewright {

struct GpuEstimate {
    double seconds = 0;
    double compute_seconds = 0;  ///< of all SMs together, as the next three
    double memory_seconds = 0;
    double shared_seconds = 0;
    double issue_seconds = 0;
    double wait_seconds = 0;  ///< of the blocks that run on one SM in sequence
    double join_seconds = 0;  ///< of the blocks that add the parts of sums
    double blocks = 1;
    double registers = 32;  ///< of a thread
};
/// The sum over all statements of the tree. `bindings`: sizes of symbols; sizes of other symbols are assumed.
GpuEstimate gpu_estimate(const TileProgram& program, const GpuTarget& target, const Bindings& bindings = {});

/// The demands of a kernel on a GPU. The model depends on them alone, since schedules under construction have no tree
/// yet.
struct GpuWork {
    double compute_seconds = 0;  ///< of all SMs together
    double memory_bytes = 0;     ///< between blocks and memory
    double once_bytes = 0;       ///< of inputs and outputs
    double shared_bytes = 0;     ///< read from shared memory by threads
    double slots = 0;            ///< instructions of warps besides `compute_seconds` (cost/gpu_slots.h)
    double blocks = 1;
    double waits = 1;         ///< sequential waits for memory in a block
    double drains = 0;        ///< times that the matrix units run empty before a block issues more
    int threads = 32;         ///< of a block
    double registers = 32;    ///< of a thread, of 32 bits
    double busy_warps = 8;    ///< that keep an SM busy
    bool phases = false;      ///< statements wait for each other: only other blocks use the units meanwhile
    int64_t block_bytes = 0;  ///< of shared memory, of a block
    double parts = 1;         ///< blocks that have parts of the same sums (split-K)
    double part_bytes = 0;    ///< of the sums of one of them
};
GpuEstimate gpu_estimate(const GpuWork& work, const GpuTarget& target);
/// The number of resident blocks of an SM, at least 1.
int blocks_at_a_time(const GpuWork& work, const GpuTarget& target);

/// Adds a Compute's arithmetic, its reads from shared memory, threads and registers to `work`. A `tile` (points per
/// axis) is computed `trips` times in all. Idle threads of a warp cost as much as others. Traffic of operands from
/// memory is not included. `copies`: of the Compute's operands. `held`: per operand, whether it is in registers.
void add_compute(GpuWork& work, const StageModel& stage, const Micro& micro, std::vector<int64_t> tile, double trips,
                 std::span<const GpuCopy> copies, const GpuTarget& target, const std::vector<bool>& held = {});
/// Registers of a thread for its results, and for the operands of one step.
struct GpuRegisters {
    double results = 1, operands = 0;
};
GpuRegisters gpu_registers(const StageModel& stage, const Micro& micro);
inline constexpr double kGpuOtherRegisters = 32;  ///< of a thread, for addresses and counters

/// Bytes of shared memory of a block of this tile program when all its buffers are there (tile/gpu_memory.h). Nothing
/// where a box has no constant bound.
std::optional<int64_t> shared_bytes(const TileProgram& program);

/// A lower bound in seconds: operations at the fastest peak rate, or inputs and outputs once through memory.
double gpu_lower_bound(const Program& stages, const GpuTarget& target, const Bindings& bindings = {});

/// Adds the traffic of split-K: of `parts` blocks with parts of the same sums, each of `part_bytes`.
void add_parts(GpuWork& work, double parts, double part_bytes);

/// FLOP/s (a multiply-add counts two) of a product on matrix instructions, or of f32 on the ordinary cores without
/// `unit`.
double gpu_flops(const GpuTarget& target, const std::optional<MatrixUnit>& unit);

/// Seconds in which one SM reads so many bytes from the L2 or memory, or from its shared memory. Gensor's formula 2
/// compares them.
double gpu_memory_seconds(const GpuTarget& target, double bytes);
double gpu_shared_seconds(const GpuTarget& target, double bytes);

}  // namespace tilewright
