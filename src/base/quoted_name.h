#pragma once
// Names from files in messages.

#include <cstddef>
#include <string>
#include <string_view>

namespace tilewright {

/// Formats a name from a file for messages: in single quotes, control characters and invalid UTF-8 escaped, truncated
/// after `max_bytes` (then followed by its full length).
std::string quoted_name(std::string_view name, size_t max_bytes = 256);

}  // namespace tilewright
