#pragma once
// BLAKE3. With a key, only its holder can compute the hash, which detects forged files; without one it detects damage.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace tilewright {

using HashKey = std::array<uint8_t, 32>;

/// BLAKE3 with the key over the concatenated parts; 32 bytes.
std::string keyed_hash(const HashKey& key, std::span<const std::string_view> parts);
inline std::string keyed_hash(const HashKey& key, std::initializer_list<std::string_view> parts) {
    return keyed_hash(key, std::span(parts.begin(), parts.size()));
}
/// BLAKE3 of the bytes, as b3sum computes it; 32 bytes.
std::string plain_hash(std::string_view bytes);
/// Of a file's bytes, which are read piece by piece. Throws RuntimeError for a file that is not regular, is empty or
/// cannot be read.
std::string plain_hash_of_file(const std::string& path);

}  // namespace tilewright
