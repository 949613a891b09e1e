#pragma once
// XXH3 with 128 bits. It detects damage, at the speed of memory; what must not be forged has a keyed_hash.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace tilewright {

/// The canonical form: big-endian on every machine.
struct Checksum {
    std::array<unsigned char, 16> bytes{};
    bool operator==(const Checksum&) const = default;
    std::string_view text() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
};

/// Of the concatenated parts.
Checksum checksum(std::initializer_list<std::string_view> parts);

/// For large contents: the checksum of the checksums of all pieces of this many bytes, computed on all processors.
inline constexpr size_t kChecksumPieceBytes = size_t{4} << 20;
/// The bytes are also stored at `to` unless that is null; a copy that another thread changes meanwhile is not detected.
Checksum pieces_checksum(std::string_view bytes, std::byte* to = nullptr);

}  // namespace tilewright
