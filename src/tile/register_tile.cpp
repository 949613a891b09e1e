#include "tile/register_tile.h"

#include <algorithm>

namespace tilewright {

std::vector<int64_t> tail_sizes(int64_t tile) {
    std::vector<int64_t> out;
    for (int64_t size = 1; size < tile; size += size < 6 ? 1 : std::max<int64_t>(2, size / 4)) out.push_back(size);
    // A tail of one point less than the whole tile does not justify separate code.
    if (out.back() > 8 && out.back() + 1 == tile) out.pop_back();
    out.push_back(tile);
    return out;
}

Accumulators accumulators_for(std::optional<int64_t> steps) {
    constexpr int64_t kInFlight = 8, kMost = 4, kWorthIt = 16;
    if (steps && *steps < kWorthIt) return {};
    return {kMost, kInFlight};
}

}  // namespace tilewright
