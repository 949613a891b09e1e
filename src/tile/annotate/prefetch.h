#pragma once
// Which operands of a stage are prefetched by software, and how far ahead.

#include <cstdint>
#include <vector>

#include "tile/annotate/site.h"

namespace tilewright {

/// Panels up to this size are prefetched while the one before is used: L2 keeps two beside the rows.
constexpr int64_t kNearPanelBytes = 128 * 1024;
/// How far ahead, in bytes, a step of a sum prefetches the panel or the window that it reads.
constexpr int64_t kPanelAhead = 8192;

std::vector<Prefetch> derive_prefetches(const StageSite& site, const Annotations& annotations);
/// Whether the code can prefetch so. Conditions that depend on the register tile at hand (its tails, addresses that are
/// not contiguous) are left to the code.
bool may_prefetch(const StageSite& site, const Prefetch& prefetch);

}  // namespace tilewright
