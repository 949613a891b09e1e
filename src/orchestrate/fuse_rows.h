#pragma once
// Fusion of stages that work on the same rows, so that a row is still in the cache when the next stage reads it
// (softmax: maximum, sum of exponentials, quotient; the normalisations; InstanceNorm's planes).

#include <vector>

#include "orchestrate/fusion_limits.h"
#include "orchestrate/kernel_group.h"

namespace tilewright {

/// Every expression primitive in exactly one group, groups in an order that can run.
std::vector<KernelGroup> fuse_rows(const Program& program, const FusionLimits& limits = {});
/// Every expression primitive is a group of its own.
std::vector<KernelGroup> single_kernels(const Program& program);

}  // namespace tilewright
