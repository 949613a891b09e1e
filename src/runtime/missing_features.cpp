#include "runtime/missing_features.h"

#include <algorithm>

namespace tilewright {

std::vector<std::string> missing_features(const Platform& platform, const std::vector<std::string>& here) {
    std::vector<std::string> missing;
    for (const std::string& f : platform.features)
        if (std::find(here.begin(), here.end(), f) == here.end()) missing.push_back(f);
    return missing;
}

}  // namespace tilewright
