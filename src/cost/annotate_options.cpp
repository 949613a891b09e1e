#include "cost/annotate_options.h"

namespace tilewright {

AnnotateOptions annotate_options(const GpuTarget& gpu) {
    return {0, false, gpu::BlockLimits{kGpuBlockThreads, gpu.block_shared_bytes}};
}

AnnotateOptions annotate_options(const Target& target) {
    if (target.gpu) return annotate_options(*target.gpu);
    // The next kernel reads a result from its start, which is the oldest part. Beside the operands of both kernels,
    // less than the whole cache keeps it until then.
    //     4096 x 256 x N on Zen 2, 16 MiB of L3, GFLOP/s with stores through the caches and around them: N = 512 (8
    //     MiB) 98 and 103, 640 94 and 103, 768 91 and 103, 1024 89 and 102
    const int64_t kept = target.last_cache_bytes() / 8 * 5;
    return {kept, target.tasks_at_a_time() == 1, {}};
}

}  // namespace tilewright
