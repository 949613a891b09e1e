#pragma once
// A kernel of one stage on a GPU while its tiles are being chosen: what gpu_estimate would say of its tree, in closed
// form. A block has a tile of every spatial axis; along the sum it goes in steps, each with copies of the operands.

#include <algorithm>
#include <span>
#include <vector>

#include "cost/gpu_estimate.h"
#include "program/analysis/dynamic.h"
#include "schedule/gpu/gpu_schedule.h"

namespace tilewright {

/// The extent of a dynamic dimension that a GPU's tiles are chosen for: four times that of estimates, so that a block's
/// tile is not cut to it.
constexpr int64_t kAssumedTiled = 4 * kAssumedExtent;

inline int64_t guess(Expr e) { return e.is_constant() ? std::max<int64_t>(1, e.constant()) : kAssumedTiled; }

class GpuNest {
  public:
    /// `product`: nothing where the stage is none: then nothing is copied, and blocks write their results themselves.
    /// `assumed`: the extent of dynamic dimensions.
    GpuNest(const Program& stages, const std::optional<GpuProduct>& product, int64_t assumed = kAssumedExtent);

    const StageModel& stage() const { return stage_; }
    /// The copies of operands, for the innermost body.
    const std::vector<Load>& loads() const { return loads_; }

    /// Bytes of shared memory of one step's copies: `tile` has the points of a step along each axis.
    int64_t copy_bytes(std::span<const int64_t> tile) const;
    /// `ahead`: TileLoop::stages of the loop over the sum.
    GpuWork work(const Micro& micro, std::vector<int64_t> tile, int ahead, const GpuTarget& target) const;

    /// Of the product's operands that move along that axis, as a whole.
    double operand_bytes(size_t axis) const;

    const std::vector<GpuCopy>& copies() const { return copies_; }

  private:
    std::vector<int64_t> clipped(std::span<const int64_t> tile) const;

    StageModel stage_;
    std::optional<GpuProduct> product_;
    std::vector<Load> loads_;
    std::vector<GpuCopy> copies_;  ///< of each of the loads
    double once_bytes_ = 0, result_bytes_ = 0;
};

}  // namespace tilewright
