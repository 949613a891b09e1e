#pragma once
// A kernel of one stage on a GPU while its tiles are being chosen: what gpu_estimate would say of its tree, in closed
// form. A block has a tile of every spatial axis; along the sum it goes in steps, each with copies of the operands.

#include <span>
#include <vector>

#include "cost/gpu_estimate.h"
#include "schedule/gpu/gpu_schedule.h"

namespace tilewright {

class GpuNest {
  public:
    /// `product`: nothing where the stage is none: then nothing is copied, and blocks write their results themselves.
    /// `assumed`: the extent of dimensions that only the run knows.
    GpuNest(const Program& stages, const std::optional<GpuProduct>& product, int64_t assumed = 128);

    const StageModel& stage() const { return stage_; }
    /// The copies of operands, for the innermost body.
    const std::vector<Load>& loads() const { return loads_; }

    /// Bytes of shared memory of one step's copies: `tile` has the points of a step along each axis.
    int64_t copy_bytes(std::span<const int64_t> tile) const;
    /// `ahead`: TileLoop::stages of the loop over the sum.
    GpuWork work(const Micro& micro, std::vector<int64_t> tile, int ahead, const GpuTarget& target) const;

    /// Loads from shared memory that a warp needs for one vector of each copied operand (16 bytes, or an element where
    /// the axis does not lie side by side): 1 where its threads meet different banks. Thread by thread: register tiles
    /// of `micro` are dealt to threads as the generator does, 32 banks of 4 bytes serve 128 bytes at a time, and
    /// threads at the same word are served together. By access; 0 for what is not copied. Not of matrix instructions.
    std::vector<double> bank_conflicts(const Micro& micro, std::span<const int64_t> tile) const;

  private:
    struct Copied {
        size_t access = 0;
        int64_t element_bytes = 4;
        std::vector<IndexReach> reaches;                 ///< per dimension of the tensor
        std::vector<std::vector<int64_t>> coefficients;  ///< [dimension][axis] of its index
        // Its layout, which permutes dimensions and pads the last.
        std::vector<size_t> order;  ///< the tensor's dimension that is the buffer's
        int64_t room = 0;           ///< elements behind each row

        int64_t elements(std::span<const int64_t> tile) const;
        /// Elements of the buffer that a step along each axis moves.
        std::vector<int64_t> strides(std::span<const int64_t> tile) const;
    };
    std::vector<int64_t> clipped(std::span<const int64_t> tile) const;

    StageModel stage_;
    std::optional<GpuProduct> product_;
    std::vector<Load> loads_;
    std::vector<Copied> copied_;
    double once_bytes_ = 0, result_bytes_ = 0;
};

}  // namespace tilewright
