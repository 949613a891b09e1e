#pragma once
// Which operands of a stage are prefetched by software, and how far ahead.

#include <vector>

#include "tile/annotate/site.h"

namespace tilewright {

std::vector<Prefetch> derive_prefetches(const StageSite& site, const Annotations& annotations);
/// Whether the code can prefetch so. Conditions that depend on the register tile at hand (its tails, addresses that are
/// not contiguous) are left to the code.
bool may_prefetch(const StageSite& site, const Prefetch& prefetch);

}  // namespace tilewright
