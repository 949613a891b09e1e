#pragma once
// What a misspelled name may have meant.

#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

/// The names that contain `wanted`, else those that differ from it least, by at most three letters.
std::vector<std::string> closest_names(std::string_view wanted, const std::vector<std::string>& names);

}  // namespace tilewright
