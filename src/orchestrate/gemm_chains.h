#pragma once
// GEMM chains: products that feed each other become one kernel (MCFuser).

#include <vector>

#include "orchestrate/fusion_limits.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/schedules.h"

namespace tilewright {

/// Groups that are one kernel as a chain of products, where the model says that this costs less than they do.
///
/// Greedy: products in order; the group of each is joined by groups that feed it alone, back to the next
/// products, of which one, all or none are included, or the groups that feed those as well.
std::vector<KernelGroup> fuse_gemm_chains(const Program& program, std::vector<KernelGroup> groups, Schedules& schedules,
                                          const FusionLimits& limits = {});

}  // namespace tilewright
