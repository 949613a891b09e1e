#include "base/checksum.h"

#define XXH_INLINE_ALL  // no library beside the program's own code
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/parallel.h"

namespace tilewright {

namespace {

class Hasher {
  public:
    Hasher() { XXH3_128bits_reset(&state_); }
    void add(std::string_view bytes) { XXH3_128bits_update(&state_, bytes.data(), bytes.size()); }
    Checksum finish() const {
        XXH128_canonical_t canonical;
        XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_));
        Checksum out;
        std::memcpy(out.bytes.data(), canonical.digest, out.bytes.size());
        return out;
    }

  private:
    XXH3_state_t state_{};
};

Checksum of_piece(std::string_view piece, std::byte* to) {
    constexpr size_t kStep = 1 << 18;  // it stays in the second cache from the copy to the checksum
    Hasher hasher;
    for (size_t at = 0; at < piece.size(); at += kStep) {
        std::string_view step = piece.substr(at, kStep);
        if (to != nullptr) {
            std::memcpy(to + at, step.data(), step.size());
            step = {reinterpret_cast<const char*>(to) + at, step.size()};
        }
        hasher.add(step);
    }
    return hasher.finish();
}

}  // namespace

Checksum checksum(std::initializer_list<std::string_view> parts) {
    Hasher hasher;
    for (const std::string_view part : parts) hasher.add(part);
    return hasher.finish();
}

Checksum pieces_checksum(std::string_view bytes, std::byte* to) {
    std::vector<Checksum> sums((bytes.size() + kChecksumPieceBytes - 1) / kChecksumPieceBytes);
    parallel_for(sums.size(), [&](size_t k) {
        const size_t at = k * kChecksumPieceBytes;
        sums[k] = of_piece(bytes.substr(at, kChecksumPieceBytes), to == nullptr ? nullptr : to + at);
    });
    return checksum({{reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof(Checksum)}});
}

}  // namespace tilewright
