#pragma once
// What a schedule costs on a GPU before it is run: MCFuser's model (§IV, equations 2 to 5) with the data sheet's rates.
//
// A block moves what its Loads copy and what its Computes read from memory themselves, once for every trip of the loops
// around them (equation 3); arithmetic runs at the peak rate of its units on whole tiles, the rest of a tile included
// (equation 4); both are scaled by (blocks + SMs) / blocks (equation 5). Beyond the paper: what is moved again comes
// from the second-level cache, operands of register tiles come through shared memory, and a block's steps wait for
// memory unless a pipelined loop has asked ahead. Not measured on a GPU yet: it ranks.

#include "cost/gpu_target.h"
#include "tile/tile.h"

namespace tilewright {

struct GpuEstimate {
    double seconds = 0;
    double compute_seconds = 0;  ///< of all SMs together, as the following
    double memory_seconds = 0;
    double shared_seconds = 0;
    double wait_seconds = 0;  ///< of one block after the other on an SM
    double blocks = 1;
};
/// Every statement of the tree. `bindings`: what symbols are; others are assumed.
GpuEstimate gpu_estimate(const TileProgram& program, const GpuTarget& target, const Bindings& bindings = {});

/// Operations at the fastest peak rate there is, or inputs and outputs once through memory. Seconds.
double gpu_lower_bound(const Program& stages, const GpuTarget& target, const Bindings& bindings = {});

/// Multiply-adds a second, times two, of a product on matrix instructions, or of f32 on the ordinary cores.
double gpu_flops(const GpuTarget& target, const std::optional<MatrixUnit>& unit);

}  // namespace tilewright
