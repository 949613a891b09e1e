#pragma once
// Split-K: a long reduction becomes two kernels, partial sums and their merge.

#include <optional>
#include <vector>

#include "orchestrate/kernel_group.h"
#include "orchestrate/schedules.h"

namespace tilewright {

/// A kernel as several: parts of its sums as tasks, then what adds them up (schedule/chain/split.h).
struct SplitKernel {
    struct Part {
        Program stages;  ///< values are connected by their names, with those of the kernel's body too
        std::vector<KernelGroup> groups;
    };
    std::vector<Part> parts;
    double seconds = 0;  ///< of all of them
};
/// Nothing where all threads (a GPU's multiprocessors) have a task as it is, nothing can be cut, or it does not gain.
std::optional<SplitKernel> split_kernel(const KernelBody& body, const Schedules::Scheduled& whole,
                                        Schedules& schedules);

/// Kernels that would leave threads, or a GPU's multiprocessors, without a task, few results of long sums each, become
/// two where that is estimated (or measured) to gain. Nothing with one thread.
void split_k(Grouped& grouped, Schedules& schedules);

}  // namespace tilewright
