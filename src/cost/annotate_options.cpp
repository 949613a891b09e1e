#include "cost/annotate_options.h"

namespace tilewright {

AnnotateOptions annotate_options(const GpuTarget& gpu) {
    return {0, false, gpu::BlockLimits{kGpuBlockThreads, gpu.block_shared_bytes}};
}

AnnotateOptions annotate_options(const Target& target) {
    if (target.gpu) return annotate_options(*target.gpu);
    return {target.last_cache_bytes(), target.tasks_at_a_time() == 1, {}};
}

}  // namespace tilewright
