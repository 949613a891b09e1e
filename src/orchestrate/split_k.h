#pragma once
// Split-K: a long reduction becomes two kernels, partial sums and their merge.

#include <optional>
#include <vector>

#include "orchestrate/kernel_group.h"
#include "orchestrate/schedules.h"

namespace tilewright {

/// A kernel split into several: parts of its sums as tasks, then their merge (schedule/chain/split.h).
struct SplitKernel {
    struct Part {
        Program stages;  ///< values of parts and of the kernel's body are identified by name
        std::vector<KernelGroup> groups;
    };
    std::vector<Part> parts;
    double seconds = 0;                  ///< of all of them
    std::optional<double> measured = 0;  ///< the same of tuned schedules, where all are tuned
};
/// Nothing where all threads (or multiprocessors) have a task without a split, no sum can be split, or it does not
/// gain.
std::optional<SplitKernel> split_kernel(const KernelBody& body, const Schedules::Scheduled& whole,
                                        Schedules& schedules);

/// Splits kernels with few results of long sums, which would leave threads or multiprocessors idle, where that gains by
/// estimates (or measurements). No effect with one thread.
void split_k(Grouped& grouped, Schedules& schedules);

}  // namespace tilewright
