#pragma once
// Sets the annotations of a tile program (tile/annotations.h): one function for each.
//
//     compute 0 vector n lanes 16 registers [m=12 n=32] padding partition
//     -> compute 0 vector n lanes 16 registers [m=12 n=32] padding partition accumulators 4 in_flight 8

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tile/annotate/site.h"
#include "tile/gpu_memory.h"
#include "tile/tile.h"

namespace tilewright {

struct AnnotateOptions {
    int64_t cache_bytes = 0;  ///< size of the largest result that caches keep for the next kernel; 0: all are
    bool one_thread = false;  ///< computes all kernels: the second-level cache has what the last one wrote
    std::optional<gpu::BlockLimits> gpu = {};  ///< of a kernel on a GPU (annotate/gpu.h)
};

/// The program with all annotations: those it has stay, absent ones are derived.
TileProgram annotate(TileProgram program, const AnnotateOptions& options);
/// Likewise, of one stage.
void annotate(Annotations& annotations, const StageSite& site, const AnnotateOptions& options);

/// The axes of a constant-coefficient linear transform whose blocks the register tile covers; see
/// ConstantTransform::periodic. Nothing where the tile cannot hold the transform as the stage is tiled.
std::optional<std::vector<size_t>> unrollable_sum(const StageSite& site, const std::vector<size_t>& cut);

/// One sentence for each annotation that the code cannot follow at this place.
std::vector<std::string> annotation_faults(const Annotations& annotations, const StageSite& site);

}  // namespace tilewright
