#pragma once
// A stable 64-bit hash (the same on every machine and run), for names and cache keys.

#include <cstdint>
#include <string_view>

namespace tilewright {

constexpr uint64_t hash_mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

/// Order-sensitive. The seed is mixed before the value is added: without that, the small integers that most keys
/// consist of collide ({0, 63} and {1, 0}, for example).
constexpr uint64_t hash_combine(uint64_t seed, uint64_t v) {
    return hash_mix(hash_mix(seed + 0x9E3779B97F4A7C15ull) ^ v);
}

/// FNV-1a, finished with hash_mix.
constexpr uint64_t hash_text(std::string_view s) {
    uint64_t h = 0xcbf29ce484222325ull;
    for (char c : s) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    return hash_mix(h);
}

}  // namespace tilewright
