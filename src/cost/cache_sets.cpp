#include "cost/cache_sets.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace tilewright {

namespace {

size_t set_of(int64_t bytes) { return static_cast<size_t>(bytes) / kLineBytes % kL1Sets; }

}  // namespace

int64_t l1_bytes(const Target& target) {
    return target.caches.empty() ? kL1Sets * kL1Ways * kLineBytes : target.caches.front().bytes;
}

int64_t l1_ways(const Target& target) { return std::max(kL1Ways, l1_bytes(target) / (kL1Sets * kLineBytes)); }

int64_t way_bytes(const CacheLevel& cache) {
    if (cache.level > 2) return 0;
    if (cache.level == 1) return kL1Sets * kLineBytes;
    return cache.bytes / (cache.ways > 0 ? cache.ways : kL1Ways);
}

int64_t steps_to_same_set(int64_t stride_bytes) {
    constexpr int64_t kPeriod = kL1Sets * kLineBytes;
    return kPeriod / std::gcd(stride_bytes, kPeriod);
}

int64_t points_in_fullest_set(int64_t outer, int64_t outer_stride_bytes, int64_t inner, int64_t inner_stride_bytes) {
    std::array<int64_t, kL1Sets> sets{};
    int64_t most = 0;
    for (int64_t i = 0; i < outer; ++i)
        for (int64_t j = 0; j < inner; ++j)
            most = std::max(most, ++sets[set_of(i * outer_stride_bytes + j * inner_stride_bytes)]);
    return most;
}

}  // namespace tilewright
