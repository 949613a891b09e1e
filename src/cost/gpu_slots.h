#pragma once
// Issue slots of kernels on matrix instructions: a multiprocessor has four schedulers, each of which issues one
// instruction of a warp in a clock. An attention has one exponential for each score, so its instructions take about as
// long as its products, and what a step has once (barrier, descriptors, factors of rows) counts. The constants are what
// bench_sass counts in the loops of generated attentions.

#include <set>
#include <span>

#include "tile/online.h"
#include "tile/tile.h"
#include "tile/walk.h"

namespace tilewright {

inline constexpr double kGpuSchedulers = 4;  ///< of a multiprocessor
/// Of a warp, for a step of a sequential loop: barrier, mbarrier, addresses, the copies that it begins.
inline constexpr double kStepSlots = 24;

class GpuSlots {
  public:
    /// `held`: values in registers (tile/gpu_memory.h). All arguments outlive it.
    GpuSlots(const TileProgram& program, const Walk& tree, const std::set<ValueId>& held);

    /// Instructions of all warps for one run of the statement on a tile, points per axis.
    double of(const TreePath& path, const Compute& compute, std::span<const int64_t> tile) const;

  private:
    double of_product(const TensorExpr& e, const MatrixUnit& unit, std::span<const int64_t> tile) const;
    bool held(ValueId v) const { return held_.count(v) != 0; }
    bool copied(PrimitiveId stage, size_t access) const;

    const TileProgram& p_;
    const Walk& tree_;
    const std::set<ValueId>& held_;
    const std::map<ValueId, OnlineMaximum> online_;
    const IndexVector<PrimitiveId, std::optional<OnlineScale>> scales_;
};

}  // namespace tilewright
