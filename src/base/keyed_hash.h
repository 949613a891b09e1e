#pragma once
// A hash that only the holder of a key can compute: tells own files from forged ones.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace tilewright {

using HashKey = std::array<uint8_t, 32>;

/// BLAKE3 under the key, 32 bytes, of the parts one after the other.
std::string keyed_hash(const HashKey& key, std::initializer_list<std::string_view> parts);

}  // namespace tilewright
