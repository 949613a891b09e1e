#pragma once
// BLAKE3. With a key, only its holder can compute the hash, which detects forged files; without one it detects damage.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
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

/// Two hexadecimal digits a byte.
std::string hex_digits(std::string_view bytes);

/// For large contents: the keyed hash of the keyed hashes of all pieces of this many bytes, computed on all processors.
inline constexpr uint64_t kHashPieceBytes = uint64_t{4} << 20;
std::string pieces_hash(const HashKey& key, std::span<const std::string_view> parts);
/// Of `bytes` bytes of an open file from offset `at`, which are also stored at `to` unless that is null. Nothing where
/// they cannot be read.
std::optional<std::string> pieces_hash_of_file(const HashKey& key, int file, uint64_t at, uint64_t bytes,
                                               std::byte* to = nullptr);
/// The same without a key.
std::string pieces_hash(std::string_view bytes);
/// Of a whole file. Throws as plain_hash_of_file.
std::string pieces_hash_of_file(const std::string& path);

}  // namespace tilewright
