#include "base/hash.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <string>

namespace tilewright {
namespace {

// Tuning databases contain these hashes: a change of any of them invalidates every stored measurement.
static_assert(hash_mix(0x9E3779B97F4A7C15ULL) == 0xE220A8397B1DCDAFULL);  // splitmix64's first output for seed 0
static_assert(hash_mix(1) == 0x5692161D100B05E5ULL);
static_assert(hash_combine(1, 2) == 0x081A5C1377856B73ULL);
static_assert(hash_combine(2, 1) == 0xF2826F98653E9E57ULL);
static_assert(hash_text("") == 0xF52A15E9A9B5E89BULL);
static_assert(hash_text("tilewright") == 0x47A7761314CF2E38ULL);

TEST(Hash, BytesAboveAsciiAndZeroCountAsUnsigned) {
    EXPECT_EQ(hash_text(std::string_view("\xFF\0\x80", 3)), 0x386053F1EFB4A7F5ULL);
}

TEST(Hash, ChangesWithEveryByteAndTheOrder) {
    std::set<uint64_t> seen;
    for (const char* text : {"", "a", "b", "aa", "ab", "ba", "aaa"}) seen.insert(hash_text(text));
    seen.insert(hash_text(std::string_view("\0", 1)));
    EXPECT_EQ(seen.size(), 8U);
}

TEST(Hash, OneBitOfInputMovesAboutHalfTheBitsOfOutput) {
    for (int bit = 0; bit < 64; ++bit) {
        const int moved = std::popcount(hash_mix(12345) ^ hash_mix(12345 ^ (uint64_t{1} << bit)));
        EXPECT_GT(moved, 12) << bit;
        EXPECT_LT(moved, 52) << bit;
    }
}

TEST(Hash, CombiningDependsOnBothArgumentsAndTheirOrder) {
    std::set<uint64_t> seen;
    for (uint64_t a = 0; a < 64; ++a)
        for (uint64_t b = 0; b < 64; ++b) seen.insert(hash_combine(a, b));
    EXPECT_EQ(seen.size(), 64U * 64U);
}

}  // namespace
}  // namespace tilewright
