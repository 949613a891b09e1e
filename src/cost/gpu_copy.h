#pragma once
// The copy of an operand in a block's shared memory: how large it is, and which banks a warp's threads meet in it.

#include <span>
#include <vector>

#include "cost/stage_model.h"
#include "tile/tile.h"

namespace tilewright {

class GpuCopy {
  public:
    GpuCopy(const Program& stages, const Load& load);

    size_t access() const { return access_; }
    /// Bytes it takes, as plan_buffers has it, where the Load stands under these ranges of the stage's axes.
    int64_t bytes(std::span<const int64_t> tile) const;
    /// Reads from shared memory that a warp needs for one of each thread, against the fewest that could be: 1 where
    /// threads meet different banks. Thread by thread: register tiles of `micro` are dealt to threads as
    /// tile/gpu_partition.h does, 32 banks of 4 bytes serve 128 bytes at a time, threads at one word are served
    /// together. A thread reads as many bytes at once as the annotations of `micro` say, without them 16 where a
    /// register tile has them side by side. Matrix instructions read rows
    /// that padding has put on different banks: 1.
    double conflicts(const StageModel& stage, const Micro& micro, std::span<const int64_t> tile) const;

  private:
    std::vector<int64_t> strides(std::span<const int64_t> tile) const;

    size_t access_ = 0;
    int64_t element_bytes_ = 4;
    Layout layout_;
    std::vector<IndexReach> reaches_;                 ///< per dimension of the tensor
    std::vector<std::vector<int64_t>> coefficients_;  ///< [dimension][axis] of its index
    // A layout that permutes dimensions and leaves room behind rows, and affine indices; of others nothing is counted.
    bool regular_ = true;
    std::vector<size_t> order_;  ///< the tensor's dimension that is the buffer's
    int64_t room_ = 0;           ///< elements behind each row
};

}  // namespace tilewright
