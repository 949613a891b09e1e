#pragma once
// A keyed hash: only the holder of the key can compute it, which detects forged files.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace tilewright {

using HashKey = std::array<uint8_t, 32>;

/// BLAKE3 with the key over the concatenated parts; 32 bytes.
std::string keyed_hash(const HashKey& key, std::initializer_list<std::string_view> parts);

}  // namespace tilewright
