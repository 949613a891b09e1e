#pragma once
// Suggestions for misspelled names.

#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

/// The names that contain `wanted`; if there are none, the names with the smallest edit distance, at most three.
std::vector<std::string> closest_names(std::string_view wanted, const std::vector<std::string>& names);

}  // namespace tilewright
