#include "base/keyed_hash.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/temporary_folder_test.h"

namespace tilewright {
namespace {

HashKey key_of(std::string_view text) {
    HashKey key{};
    std::memcpy(key.data(), text.data(), std::min(text.size(), key.size()));
    return key;
}

std::string digits(const std::string& bytes) {
    std::string text;
    for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
    return text;
}

/// BLAKE3's published test vectors: bytes 0, 1, ..., 250, 0, ... under this key.
TEST(KeyedHash, IsBlake3) {
    const HashKey key = key_of("whats the Elvish word for friend");
    EXPECT_EQ(digits(keyed_hash(key, {})), "92b2b75604ed3c761f9d6f62392c8a9227ad0ea3f09573e783f1498a4ed60d26");
    EXPECT_EQ(digits(keyed_hash(key, {std::string_view("\0", 1)})),
              "6d7878dfff2f485635d39013278ae14f1454b8c0a3a2d34bc1ab38228a80c95b");
}

TEST(PlainHash, IsBlake3) {
    EXPECT_EQ(digits(plain_hash("")), "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
    EXPECT_EQ(digits(plain_hash(std::string_view("\0", 1))),
              "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213");
}

TEST(PlainHash, OfAFileIsThatOfItsBytes) {
    const TemporaryFolder folder;
    const std::string path = folder / "file";
    std::string bytes;
    for (size_t i = 0; i < (3 << 20) + 7; ++i) bytes += static_cast<char>(i * 7 + i / 251);
    std::ofstream(path) << bytes;
    EXPECT_EQ(plain_hash_of_file(path), plain_hash(bytes));
    std::ofstream(path, std::ios::trunc).close();
    for (const std::string& other : {path, folder.path(), folder / "missing"})
        EXPECT_THROW(plain_hash_of_file(other), RuntimeError) << other;
}

TEST(KeyedHash, DependsOnTheKeyAndOnEveryByteOfTheParts) {
    const HashKey key = key_of("a key"), other = key_of("b key");
    const std::string whole = keyed_hash(key, {"abcdef"});
    EXPECT_EQ(keyed_hash(key, {"abc", "", "def"}), whole);
    EXPECT_NE(keyed_hash(other, {"abcdef"}), whole);
    EXPECT_NE(keyed_hash(key, {"abcdeg"}), whole);
    EXPECT_NE(keyed_hash(key, {"abcde"}), whole);
}

}  // namespace
}  // namespace tilewright
