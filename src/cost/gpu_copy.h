#pragma once
// The copy of an operand in a block's shared memory: its size and its bank conflicts.

#include <span>
#include <vector>

#include "cost/stage_model.h"
#include "tile/tile.h"

namespace tilewright {

class GpuCopy {
  public:
    GpuCopy(const Program& stages, const Load& load);

    size_t access() const { return access_; }
    /// Bytes of the copy, as plan_buffers computes them, for these ranges of the stage's axes around the Load.
    int64_t bytes(std::span<const int64_t> tile) const;
    /// Shared memory transactions of a warp's read, relative to the minimum; 1 without bank conflicts. Threads are
    /// enumerated: register tiles of `micro` are assigned to threads as in tile/gpu_partition.h. 32 banks of 4 bytes
    /// serve 128 bytes at a time, and threads that read the same word are served together. A thread reads as
    /// many bytes at once as the annotations of `micro` say; without them 16 where its register tile has them
    /// contiguous. Matrix instructions read rows that padding has put on different banks: 1.
    double conflicts(const StageModel& stage, const Micro& micro, std::span<const int64_t> tile) const;

  private:
    std::vector<int64_t> strides(std::span<const int64_t> tile) const;

    size_t access_ = 0;
    int64_t element_bytes_ = 4;
    Layout layout_;
    std::vector<IndexReach> reaches_;                 ///< per dimension of the tensor
    std::vector<std::vector<int64_t>> coefficients_;  ///< [dimension][axis] of its index
    // True for a layout that permutes dimensions and pads rows, with affine indices. Conflicts of others are not
    // counted.
    bool regular_ = true;
    std::vector<size_t> order_;  ///< per dimension of the buffer, the dimension of the tensor
    int64_t room_ = 0;           ///< padding elements after each row
};

}  // namespace tilewright
