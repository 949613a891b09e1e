#pragma once
// The number of threads: the user's choice, otherwise the limit of the machine and its container.

#include <optional>
#include <string>
#include <vector>

#include "runtime/control_group.h"

namespace tilewright {

/// The maximum size of a pool; larger requests are refused.
inline constexpr int kMaxThreads = 1024;

/// The CPU quota of this process under its control groups, in CPUs (1.5 = one and a half), or nullopt without a limit.
/// Reads /proc/self/cgroup and /proc/self/mountinfo, then `cpu.max` (version 2) and `cpu.cfs_quota_us` over
/// `cpu.cfs_period_us` (version 1) of the process's group and of every visible ancestor; the smallest quota counts.
/// Unreadable or malformed entries do not limit.
std::optional<double> cgroup_cpu_quota(const FileReader& read);

/// The CPUs that the calling thread may run on, ascending (sched_getaffinity). Never empty.
std::vector<int> allowed_cpus();

/// The same CPUs, one of each physical core first, then the cores' second hardware threads, and so on: the order in
/// which pinned threads share cores as late as possible. CPUs 0..3 on two cores with the siblings {0,1} and {2,3} -> 0,
/// 2, 1, 3.
std::vector<int> spread_over_cores(const std::vector<int>& cpus, const FileReader& read);

/// The inputs of the choice of the number of threads.
struct ThreadCountSources {
    int requested = 0;                                  ///< --threads; 0: not given
    std::optional<std::string> tilewright_num_threads;  ///< environment; empty or 0: not given
    std::optional<std::string> omp_num_threads;  ///< environment; OpenMP's list "4,2" means 4; ignored if malformed
    int allowed_cpus = 1;                        ///< CPUs in the affinity mask
    std::optional<double> cpu_quota;             ///< of the control group, in CPUs
};

/// The first of: requested, TILEWRIGHT_NUM_THREADS, OMP_NUM_THREADS, usable CPUs. The last is the affinity mask limited
/// by the quota, rounded up. Between 1 and kMaxThreads. Throws RuntimeError if the explicit choice (argument or
/// TILEWRIGHT_NUM_THREADS) is not such a number.
int thread_count(const ThreadCountSources& sources);

/// thread_count of this process and machine. `requested` 0: not given.
int default_thread_count(int requested = 0);

/// The usable CPUs of this process: default_thread_count without argument and environment.
int usable_cpu_count();

}  // namespace tilewright
