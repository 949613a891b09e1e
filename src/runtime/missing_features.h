#pragma once
// Whether code runs on a CPU.

#include <string>
#include <vector>

#include "runtime/cpu_features.h"

namespace tilewright {

/// What the platform needs and is not among the features `here`.
std::vector<std::string> missing_features(const Platform& platform, const std::vector<std::string>& here);

}  // namespace tilewright
