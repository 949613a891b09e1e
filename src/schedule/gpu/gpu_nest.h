#pragma once
// Closed-form cost of a single-stage kernel on a GPU while its tiles are chosen; it equals gpu_estimate of the
// resulting tree. A block has a tile of every spatial axis. The reduction is a loop of steps, each with copies of the
// operands.

#include <algorithm>
#include <span>
#include <vector>

#include "cost/gpu_estimate.h"
#include "program/analysis/dynamic.h"
#include "schedule/gpu/gpu_schedule.h"

namespace tilewright {

/// The extent of a dynamic dimension that GPU tiles are chosen for: four times that of estimates, so that the extent
/// does not limit a block's tile.
constexpr int64_t kAssumedTiled = 4 * kAssumedExtent;

inline int64_t guess(Expr e) { return e.is_constant() ? std::max<int64_t>(1, e.constant()) : kAssumedTiled; }

class GpuNest {
  public:
    /// `product`: nothing for other stages; then nothing is copied, and blocks store their results directly. `assumed`:
    /// the extent of dynamic dimensions.
    GpuNest(const Program& stages, const std::optional<GpuProduct>& product, int64_t assumed = kAssumedExtent);

    const StageModel& stage() const { return stage_; }
    /// The copies of operands, which stand in the innermost body.
    const std::vector<Load>& loads() const { return loads_; }

    /// Bytes of shared memory for the copies of one step. `tile`: points of a step along each axis.
    int64_t copy_bytes(std::span<const int64_t> tile) const;
    /// The demands of the kernel. `ahead`: TileLoop::stages of the loop over the reduction. `part`: points of the
    /// product's sum in a block's part; 0: all of them.
    GpuWork work(const Micro& micro, std::vector<int64_t> tile, int ahead, const GpuTarget& target,
                 int64_t part = 0) const;

    /// Bytes of those whole operands of the product that vary along the axis.
    double operand_bytes(size_t axis) const;

    const std::vector<GpuCopy>& copies() const { return copies_; }

  private:
    std::vector<int64_t> clipped(std::span<const int64_t> tile) const;

    StageModel stage_;
    std::optional<GpuProduct> product_;
    std::vector<Load> loads_;
    std::vector<GpuCopy> copies_;  ///< one per load
    double once_bytes_ = 0, result_bytes_ = 0, sum_bytes_ = 4;
};

}  // namespace tilewright
