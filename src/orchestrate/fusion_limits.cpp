#include "orchestrate/fusion_limits.h"

#include <algorithm>

namespace tilewright {

const char* Refusals::reason(const Parts& producer, const Parts& reader) const {
    const auto meet = [](const Parts& a, const Parts& b) {
        return std::any_of(a.begin(), a.end(), [&](uint32_t x) { return std::binary_search(b.begin(), b.end(), x); });
    };
    const char* reason = nullptr;
    size_t latest = 0;
    for (const auto& [parts, refusal] : last_)
        if (refusal.second >= latest && meet(parts.first, producer) && meet(parts.second, reader)) {
            latest = refusal.second;
            reason = refusal.first.reason;
        }
    return reason;
}

}  // namespace tilewright
