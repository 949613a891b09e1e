#include "driver/npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include "base/error.h"
#include "driver/files.h"

namespace tilewright {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

/// Written by Python's zipfile: 'a/b' (deflated, its local header with ZIP64 sizes, as numpy writes them), f32[2, 2] =
/// 1 2 3 4; 'n' (stored), i64[] = -7; and a readme.
constexpr std::string_view kFromPython =
    "504b03042d0000000800000021003dc2bd3cffffffffffffffff07001400612f622e6e7079010010009000000000000000510000000000"
    "00009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9366a2aea3a09e965f54529498179f5f94920a12774bcc294e058a17672416"
    "a402f91a463a0a469ab50a14002e0686067b060606072002e2060700504b030414000000000000002100c4428b32480000004800000005"
    "0000006e2e6e7079934e554d5059010036007b276465736372273a20273c6938272c2027666f727472616e5f6f72646572273a2046616c"
    "73652c20277368617065273a2028297d0af9ffffffffffffff504b0304140000000800b40c765d704d3fbd0a000000080000000a000000"
    "726561646d652e747874cbcb57482c2a4aac0400504b01022d032d0000000800000021003dc2bd3c510000009000000007000000000000"
    "0000000000800100000000612f622e6e7079504b0102140314000000000000002100c4428b324800000048000000050000000000000000"
    "00000080018a0000006e2e6e7079504b01021403140000000800b40c765d704d3fbd0a000000080000000a000000000000000000000080"
    "01f5000000726561646d652e747874504b05060000000003000300a0000000270100000000";

std::string from_hex(std::string_view hex) {
    std::string bytes;
    for (size_t i = 0; i + 1 < hex.size(); i += 2)
        bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
    return bytes;
}

class Npz : public testing::Test {
  protected:
    ~Npz() override { ::unlink(path_.c_str()); }

    std::vector<NamedTensor> load(const std::string& bytes) const {
        write_file(path_, {bytes});
        return load_npz(path_);
    }
    std::string error_for(const std::string& bytes) const {
        try {
            load(bytes);
        } catch (const ModelError& e) {
            return e.what();
        } catch (const RuntimeError& e) {
            return e.what();
        }
        return "accepted";
    }
    const std::string path_ = testing::TempDir() + fmt::format("npz_test_{}.npz", ::getpid());
};

TEST_F(Npz, ReadsFilesOfOtherWriters) {
    const std::vector<NamedTensor> arrays = load(from_hex(kFromPython));
    ASSERT_EQ(arrays.size(), 2u);
    EXPECT_EQ(arrays[0].name, "a/b");
    EXPECT_EQ(arrays[0].value, Tensor::of<int>(DType::F32, {2, 2}, {1, 2, 3, 4}));
    EXPECT_EQ(arrays[1].name, "n");
    EXPECT_EQ(arrays[1].value, Tensor::of<int>(DType::I64, {}, {-7}));
}

TEST_F(Npz, RoundTrips) {
    std::vector<NamedTensor> arrays = {{"x", Tensor::of<int>(DType::I32, {3}, {1, -2, 3})},
                                       {"scope/y:0", Tensor(DType::F32, {0, 4})},
                                       {"zeros", Tensor(DType::F64, {1000, 1000})}};
    save_npz(path_, arrays);
    const std::string first = read_file(path_);
    EXPECT_LT(first.size(), 100'000u);  // eight million bytes of zeros
    const std::vector<NamedTensor> read = load_npz(path_);
    ASSERT_EQ(read.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(read[i].name, arrays[i].name);
        EXPECT_EQ(read[i].value, arrays[i].value);
    }
    save_npz(path_, arrays);
    EXPECT_EQ(read_file(path_), first) << "equal arrays should make equal files";
}

TEST_F(Npz, WritesNoNameThatEscapesFromAFolder) {
    const Tensor t(DType::F32, {1});
    save_npz(path_, {{"../x", t}, {"/etc/x", t}, {"a\\b", t}, {"a/../b", t}, {"a..b/c", t}, {"_.._x", t}});
    std::vector<std::string> names;
    for (const NamedTensor& a : load_npz(path_)) names.push_back(a.name);
    EXPECT_THAT(names, testing::ElementsAre("_.._x", "_etc_x", "a_b", "a_.._b", "a..b/c", "_.._x_1"));
}

TEST_F(Npz, ReportsErrors) {
    EXPECT_THAT(error_for(""), EndsWith("is cut off, damaged or not an .npz file"));
    EXPECT_THAT(error_for("\x93NUMPY, which is no archive, whatever it is called"),
                EndsWith("is cut off, damaged or not an .npz file"));
    std::string bytes = from_hex(kFromPython);
    const size_t stored = bytes.find("\xf9\xff\xff\xff\xff\xff\xff\xff");  // the -7
    bytes[stored] = 1;
    EXPECT_THAT(error_for(bytes), HasSubstr("array 'n' of "));
    EXPECT_THAT(error_for(bytes), EndsWith("is damaged: its checksum is wrong"));
    std::string encrypted = from_hex(kFromPython);
    encrypted[encrypted.find("PK\1\2") + 8] |= 1;
    EXPECT_THAT(error_for(encrypted), EndsWith("is encrypted"));
    std::string method = from_hex(kFromPython);
    method[method.find("PK\1\2") + 10] = 12;
    EXPECT_THAT(error_for(method), EndsWith("is packed by method 12, which Tilewright does not read"));
}

TEST_F(Npz, AllocatesNothingForImpossibleSizes) {
    std::string bytes = from_hex(kFromPython);
    const size_t entry = bytes.find("PK\1\2");
    bytes.replace(entry + 24, 4, std::string("\0\0\0\x7f", 4));  // two GiB
    EXPECT_THAT(error_for(bytes), EndsWith("declares 2130706432 bytes, which 81 packed bytes cannot hold"));
    bytes.replace(entry + 24, 4, std::string("\0\1\0\0", 4));
    EXPECT_THAT(error_for(bytes), EndsWith("does not inflate to the 256 bytes it declares"));
    bytes.replace(entry + 24, 4, std::string("\x10\0\0\0", 4));
    EXPECT_THAT(error_for(bytes), EndsWith("does not inflate to the 16 bytes it declares"));
}

TEST_F(Npz, ArbitraryBytesAreAnArchiveOrAnError) {
    const std::string whole = from_hex(kFromPython);
    for (size_t n = 0; n < whole.size(); ++n) EXPECT_NE(error_for(whole.substr(0, n)), "accepted") << n;
    rc::check("any bytes changed", [&] {
        std::string bytes = whole;
        const int changes = *rc::gen::inRange(1, 5);
        for (int i = 0; i < changes; ++i)
            bytes[*rc::gen::inRange<size_t>(0, bytes.size())] = static_cast<char>(*rc::gen::inRange(0, 256));
        error_for(bytes);
    });
}

TEST_F(Npz, TwoArraysOfOneNameAreAnError) {
    std::string bytes = from_hex(kFromPython);
    const size_t entry = bytes.find("PK\1\2");
    const size_t second = bytes.find("PK\1\2", entry + 4);
    // One entry repeated in the place of the readme's entry, which is longer by a comment.
    std::string again = bytes.substr(second, bytes.find("PK\1\2", second + 4) - second);
    const size_t third = second + again.size();
    bytes.replace(third, bytes.find("PK\5\6") - third, again);
    EXPECT_THAT(error_for(bytes), EndsWith("has two arrays called 'n'"));
}

}  // namespace
}  // namespace tilewright
