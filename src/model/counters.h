#pragma once
// Counts of what a session does beside running kernels. Dynamic shapes are free of overhead exactly when they stand
// still (docs/dynamic-shapes.md).

#include <atomic>
#include <cstdint>

namespace tilewright {

/// Since the session was made.
struct RunCounts {
    uint64_t runs = 0;
    uint64_t compilations = 0;  ///< of the strict program that replaces one whose inputs do not suit it (NeedsFallback)
    uint64_t preparations = 0;  ///< of a combination of input sizes that was not seen, or not among the last 16
    uint64_t recalled = 0;      ///< preparations that were among the last 16, but not the latest
    uint64_t memory_plans = 0;
    uint64_t dispatches = 0;    ///< choices among the kernels of a region (Plan::regions)
    uint64_t bytes_copied = 0;  ///< by the session, not by kernels: outputs, and what control flow carries
};

/// The same, counted from several threads.
struct RunCounters {
    std::atomic<uint64_t> runs{0}, compilations{0}, preparations{0}, recalled{0}, memory_plans{0}, dispatches{0},
        bytes_copied{0};
    RunCounts counts() const {
        return {runs, compilations, preparations, recalled, memory_plans, dispatches, bytes_copied};
    }
};

}  // namespace tilewright
