#include "base/keyed_hash.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/private_folder.h"
#include "base/temporary_folder_test.h"

namespace tilewright {
namespace {

HashKey key_of(std::string_view text) {
    HashKey key{};
    std::memcpy(key.data(), text.data(), std::min(text.size(), key.size()));
    return key;
}

/// BLAKE3's published test vectors: bytes 0, 1, ..., 250, 0, ... under this key.
TEST(KeyedHash, IsBlake3) {
    const HashKey key = key_of("whats the Elvish word for friend");
    EXPECT_EQ(hex_digits(keyed_hash(key, {})), "92b2b75604ed3c761f9d6f62392c8a9227ad0ea3f09573e783f1498a4ed60d26");
    EXPECT_EQ(hex_digits(keyed_hash(key, {std::string_view("\0", 1)})),
              "6d7878dfff2f485635d39013278ae14f1454b8c0a3a2d34bc1ab38228a80c95b");
}

TEST(PlainHash, IsBlake3) {
    EXPECT_EQ(hex_digits(plain_hash("")), "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
    EXPECT_EQ(hex_digits(plain_hash(std::string_view("\0", 1))),
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
    for (const std::string& other : {path, folder.path(), folder / "missing"}) {
        EXPECT_THROW(plain_hash_of_file(other), RuntimeError) << other;
        EXPECT_THROW(pieces_hash_of_file(other), RuntimeError) << other;
    }
}

TEST(KeyedHash, DependsOnTheKeyAndOnEveryByteOfTheParts) {
    const HashKey key = key_of("a key"), other = key_of("b key");
    const std::string whole = keyed_hash(key, {"abcdef"});
    EXPECT_EQ(keyed_hash(key, {"abc", "", "def"}), whole);
    EXPECT_NE(keyed_hash(other, {"abcdef"}), whole);
    EXPECT_NE(keyed_hash(key, {"abcdeg"}), whole);
    EXPECT_NE(keyed_hash(key, {"abcde"}), whole);
}

/// Of sizes around a piece and several pieces; parts that cross pieces.
TEST(PiecesHash, IsTheSameOfPartsAndOfAFile) {
    const TemporaryFolder folder;
    const HashKey key = key_of("a key"), other = key_of("b key");
    std::string all;
    for (size_t i = 0; i < 2 * kHashPieceBytes + 5; ++i) all += static_cast<char>(i * 7 + i / 251);
    for (const size_t size : {size_t{0}, size_t{1}, kHashPieceBytes, kHashPieceBytes + 1, all.size()}) {
        const std::string_view bytes = std::string_view(all).substr(0, size);
        const std::vector<std::string_view> whole = {bytes},
                                            parts = {bytes.substr(0, size / 3), "", bytes.substr(size / 3)};
        const std::string hash = pieces_hash(key, whole);
        EXPECT_EQ(pieces_hash(key, parts), hash) << size;
        EXPECT_NE(pieces_hash(other, whole), hash) << size;
        std::ofstream(folder / "file", std::ios::binary) << "head" << bytes;
        const Descriptor file(::open((folder / "file").c_str(), O_RDONLY | O_CLOEXEC));
        EXPECT_EQ(pieces_hash_of_file(key, file.get(), 4, size), hash) << size;
        std::string read(size, ' ');
        EXPECT_EQ(pieces_hash_of_file(key, file.get(), 4, size, reinterpret_cast<std::byte*>(read.data())), hash);
        EXPECT_TRUE(read == bytes) << size;
        EXPECT_EQ(pieces_hash_of_file(key, file.get(), 4, size + 1), std::nullopt) << size;
        EXPECT_EQ(pieces_hash_of_file(folder / "file"), pieces_hash(fmt::format("head{}", bytes))) << size;
    }
}

TEST(PiecesHash, DependsOnEveryByteAndItsPlace) {
    const HashKey key = key_of("a key");
    std::string bytes(2 * kHashPieceBytes, 'a');
    const auto hash = [&] { return pieces_hash(key, std::vector<std::string_view>{bytes}); };
    const std::string first = hash();
    for (const size_t at : {size_t{0}, kHashPieceBytes - 1, kHashPieceBytes, bytes.size() - 1}) {
        bytes[at] = 'b';
        EXPECT_NE(hash(), first) << at;
        bytes[at] = 'a';
    }
    bytes[0] = 'b';
    const std::string begins = hash();
    std::swap(bytes[0], bytes[kHashPieceBytes]);
    EXPECT_NE(hash(), begins);
}

}  // namespace
}  // namespace tilewright
