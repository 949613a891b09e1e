#pragma once
// The schedules that SchedulerKind::Search measures of a kernel, in rounds: the next ones depend on the times of those
// before. The sequence is the same whenever the times are.

#include <memory>
#include <vector>

#include "schedule/scheduler.h"

namespace tilewright {

class CandidateSearch {
  public:
    virtual ~CandidateSearch() = default;
    /// At most `most` further schedules. Empty: no others are found. Different states may be equal as programs.
    virtual std::vector<TileProgram> next(size_t most) = 0;
    /// The seconds of the schedules of the last next(), in their order. Negative: the schedule cannot be run.
    virtual void tell(const std::vector<double>& seconds) = 0;
};

/// Of a kernel of one stage, or of several that share rows: states of Gensor's space, those of the walk first, then
/// random states and neighbours of the best few in equal numbers. Null where schedules are not constructed.
std::unique_ptr<CandidateSearch> search_states(Program stages,
                                               const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                                               const Scheduling& how);

/// Of a GEMM chain: at most `most` programs of MCFuser's pruned space, ascending by estimate. Null where the kernel is
/// no chain, or too large a one.
std::unique_ptr<CandidateSearch> search_chain(const Program& stages, const Scheduling& how, size_t most);

}  // namespace tilewright
