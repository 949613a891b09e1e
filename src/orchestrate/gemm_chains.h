#pragma once
// GEMM chains: products that feed each other become one kernel (MCFuser).

#include <vector>

#include "orchestrate/fusion_limits.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/schedules.h"

namespace tilewright {

/// Merges groups into GEMM chains where the estimate of the chain is below that of its groups.
///
/// Greedy, product by product: a candidate for a product's group is the set of groups that feed only it, back to the
/// nearest products, of which one, all or none are included; or that set with the groups that feed those products.
std::vector<KernelGroup> fuse_gemm_chains(const Program& program, std::vector<KernelGroup> groups, Schedules& schedules,
                                          const FusionLimits& limits = {});

}  // namespace tilewright
