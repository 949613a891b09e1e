#include "base/checksum.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "base/keyed_hash.h"

namespace tilewright {
namespace {

/// Against `printf abc | xxh128sum`, and of nothing.
TEST(Checksum, IsXxh3With128Bits) {
    EXPECT_EQ(hex_digits(checksum({"abc"}).text()), "06b05ab6733a618578af5f94892f3950");
    EXPECT_EQ(hex_digits(checksum({}).text()), "99aa06d3014798d86001c324468d497f");
}

TEST(Checksum, DependsOnEveryByteOfTheParts) {
    EXPECT_EQ(checksum({"abc", "", "def"}), checksum({"abcdef"}));
    EXPECT_NE(checksum({"abcdeg"}), checksum({"abcdef"}));
    EXPECT_NE(checksum({"abcdef", std::string_view("\0", 1)}), checksum({"abcdef"}));
}

TEST(PiecesChecksum, DependsOnEveryPieceAndOnTheirOrder) {
    std::string bytes(2 * kChecksumPieceBytes + 7, '\0');
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
    const Checksum whole = pieces_checksum(bytes);
    for (const size_t at : {size_t{0}, kChecksumPieceBytes - 1, kChecksumPieceBytes, bytes.size() - 1}) {
        std::string other = bytes;
        other[at] = static_cast<char>(other[at] ^ 1);
        EXPECT_NE(pieces_checksum(other), whole) << at;
    }
    const std::string_view all = bytes;
    const std::string turned = std::string(all.substr(kChecksumPieceBytes, kChecksumPieceBytes)) +
                               std::string(all.substr(0, kChecksumPieceBytes)) +
                               std::string(all.substr(2 * kChecksumPieceBytes));
    EXPECT_NE(pieces_checksum(turned), whole);
    EXPECT_NE(pieces_checksum(all.substr(0, all.size() - 1)), whole);
}

TEST(PiecesChecksum, CopiesTheBytes) {
    std::string bytes(kChecksumPieceBytes + (1 << 18) + 5, '\0');
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 13 + i / 509);
    std::string copy(bytes.size(), '\0');
    EXPECT_EQ(pieces_checksum(bytes, reinterpret_cast<std::byte*>(copy.data())), pieces_checksum(bytes));
    EXPECT_EQ(copy, bytes);
    EXPECT_EQ(pieces_checksum({}), checksum({}));
}

}  // namespace
}  // namespace tilewright
