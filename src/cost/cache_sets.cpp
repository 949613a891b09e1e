#include "cost/cache_sets.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace tilewright {

int64_t steps_to_same_set(int64_t stride_bytes) {
    constexpr int64_t kPeriod = kL1Sets * kLineBytes;
    return kPeriod / std::gcd(stride_bytes, kPeriod);
}

int64_t points_in_fullest_set(int64_t outer, int64_t outer_stride_bytes, int64_t inner, int64_t inner_stride_bytes) {
    std::map<int64_t, int64_t> sets;
    int64_t most = 0;
    for (int64_t i = 0; i < outer; ++i)
        for (int64_t j = 0; j < inner; ++j)
            most = std::max(most, ++sets[(i * outer_stride_bytes + j * inner_stride_bytes) / kLineBytes % kL1Sets]);
    return most;
}

}  // namespace tilewright
