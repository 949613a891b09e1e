#include "cost/annotate_options.h"

namespace tilewright {

AnnotateOptions annotate_options(const GpuTarget& gpu) {
    return {0, gpu::BlockLimits{kGpuBlockThreads, gpu.block_shared_bytes}};
}

AnnotateOptions annotate_options(const Target& target) {
    return target.gpu ? annotate_options(*target.gpu) : AnnotateOptions{target.last_cache_bytes(), {}};
}

}  // namespace tilewright
