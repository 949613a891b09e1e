#pragma once
// Fusion of stages that work on the same rows, so that a row is still in the cache when the next stage reads it
// (softmax: maximum, sum of exponentials, quotient; normalisations; the planes of an InstanceNorm).

#include <vector>

#include "orchestrate/fusion_limits.h"
#include "orchestrate/kernel_group.h"

namespace tilewright {

/// Groups of primitives that share rows. Every expression primitive is in exactly one group, and the groups are in
/// topological order.
std::vector<KernelGroup> fuse_rows(const Program& program, const FusionLimits& limits = {});
/// A group for every expression primitive.
std::vector<KernelGroup> single_kernels(const Program& program);

}  // namespace tilewright
