#include "driver/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "driver/files.h"

namespace tilewright {
namespace {

using testing::StartsWith;

/// A file with this header and these elements, in the format of numpy.save.
std::string npy(std::string header, const std::string& data) {
    header += '\n';
    return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(header.size()) + '\0' + header + data;
}

std::string error_for(const std::string& bytes) {
    try {
        parse_npy(bytes, "x.npy");
    } catch (const ModelError& e) {
        return e.what() + (e.hint().empty() ? "" : " | " + e.hint());
    }
    return "accepted";
}

const std::string kBytes("\1\0\2\0\3\0\4\0\5\0\6\0", 12);

TEST(Npy, ReadsRowMajor) {
    const Tensor t = parse_npy(npy("{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }", kBytes), "x.npy");
    EXPECT_EQ(t.dtype(), DType::I16);
    EXPECT_EQ(t.shape(), (Shape{2, 3}));
    EXPECT_EQ(t.to_ints(), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
}

TEST(Npy, ConvertsColumnMajorToRowMajor) {
    const Tensor t = parse_npy(npy("{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }", kBytes), "x.npy");
    EXPECT_EQ(t.shape(), (Shape{2, 3}));
    EXPECT_EQ(t.to_ints(), (std::vector<int64_t>{1, 3, 5, 2, 4, 6}));
}

TEST(Npy, ReadsScalarsListsAndLongHeaders) {
    EXPECT_EQ(parse_npy(npy("{'descr': '<i2', 'fortran_order': False, 'shape': (), }", kBytes), "x").shape(), Shape{});
    EXPECT_EQ(parse_npy(npy("{'descr': '<i2', 'fortran_order': True, 'shape': (6,), }", kBytes), "x").to_ints(),
              (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(parse_npy(npy("{'descr': '<i2', 'fortran_order': False, 'shape': (0, 3), }", ""), "x").shape(),
              (Shape{0, 3}));
    std::string second = npy("{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }", kBytes);
    second[6] = 2;  // version 2: four bytes of length
    second.insert(10, 2, '\0');
    EXPECT_EQ(parse_npy(second, "x").to_ints(), (std::vector<int64_t>{1, 2}));
}

TEST(Npy, MakesBooleansZeroOrOne) {
    const Tensor t = parse_npy(npy("{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", {"\0\1\7", 3}), "x");
    EXPECT_EQ(t.to_ints(), (std::vector<int64_t>{0, 1, 1}));
}

TEST(Npy, ReportsErrors) {
    EXPECT_EQ(error_for(""), "'x.npy' is not an .npy file");
    EXPECT_EQ(error_for("PK\3\4 and more bytes"), "'x.npy' is not an .npy file");
    EXPECT_THAT(error_for(npy("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", kBytes)),
                StartsWith("'x.npy' holds elements of type '>f4', which Tilewright does not read | save it in "
                           "little-endian order"));
    EXPECT_THAT(error_for(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", kBytes)),
                StartsWith("'x.npy' holds elements of type '[('a', '<f4')]"));
    EXPECT_EQ(error_for(npy("{'descr': '<i2', 'fortran_order': False, 'shape': (4, 2), }", kBytes)),
              "'x.npy' has 12 bytes of data, and its shape [4, 2] needs 8 elements of 2 bytes");
    EXPECT_EQ(error_for(npy("{'descr': '<i2', 'fortran_order': False, 'shape': (-1,), }", kBytes)),
              "'x.npy': its shape cannot be read");
    EXPECT_EQ(error_for(npy("{'descr': '<i2', 'fortran_order': False, }", kBytes)),
              "'x.npy' is not an .npy file: its header has no 'shape'");
    EXPECT_NE(error_for(npy("{'descr': '<i2', 'fortran_order': False, 'shape': (999999999999, 99999999999), }", "")),
              "accepted");
}

TEST(Npy, RefusesTruncatedFiles) {
    const std::string whole = npy("{'shape': (2, 3), 'fortran_order': False, 'descr': '<i2'}", kBytes);
    ASSERT_EQ(error_for(whole), "accepted");
    for (size_t n = 0; n < whole.size(); ++n) EXPECT_NE(error_for(whole.substr(0, n)), "accepted") << n;
    // Headers whose length ends inside the last field.
    for (size_t n = 0; n < 57; ++n) {
        std::string cut = whole;
        cut[8] = static_cast<char>(n);
        error_for(cut);
    }
}

TEST(Npy, RoundTrips) {
    const std::string path = testing::TempDir() + fmt::format("npy_test_{}.npy", ::getpid());
    for (const DType type : {DType::Bool, DType::I8, DType::U16, DType::I64, DType::F16, DType::F32, DType::F64}) {
        const Tensor t = Tensor::of<int>(type, {2, 1, 2}, {0, 1, 1, 0});
        save_npy(path, t);
        EXPECT_EQ(load_npy(path), t) << to_string(type);
        EXPECT_EQ(read_file(path).size() % 64, t.bytes() % 64) << "the elements are not aligned";
    }
    const Tensor small = Tensor::of<double>(DType::BF16, {2}, {1.5, -3});
    save_npy(path, small);
    EXPECT_EQ(load_npy(path), Tensor::of<double>(DType::F32, {2}, {1.5, -3}));
    ::unlink(path.c_str());
}

TEST(Files, NameThePathTheyCannotReadOrWrite) {
    EXPECT_THROW(
        {
            try {
                load_npy("no/such.npy");
            } catch (const RuntimeError& e) {
                EXPECT_STREQ(e.what(), "cannot read 'no/such.npy': No such file or directory");
                throw;
            }
        },
        RuntimeError);
    EXPECT_THROW(read_file("/dev/zero"), RuntimeError);
    EXPECT_THROW(write_file("no/such/folder/x", {"a"}), RuntimeError);
}

TEST(Files, AreCheckedBeforeWriting) {
    const std::string path = testing::TempDir() + "/checked";
    ::unlink(path.c_str());
    EXPECT_NO_THROW(check_writable(path));
    EXPECT_THROW(read_file(path), RuntimeError) << "it was made";
    write_file(path, {"a"});
    EXPECT_NO_THROW(check_writable(path));
    EXPECT_NO_THROW(check_writable("/dev/null"));
    EXPECT_EQ(read_file(path), "a");
    for (const std::string& bad : {std::string("no/such/folder/x"), testing::TempDir(), path + "/x", std::string()})
        EXPECT_THROW(check_writable(bad), RuntimeError) << bad;
    ::unlink(path.c_str());
}

TEST(Files, NamesOfTensorsNeverLeaveTheirFolder) {
    EXPECT_EQ(file_name_of("logits"), "logits");
    EXPECT_EQ(file_name_of("a/b:0"), "a_b_0");
    EXPECT_EQ(file_name_of("../../x"), "_.._.._x");
    EXPECT_EQ(file_name_of(".."), "_..");
    EXPECT_EQ(file_name_of(""), "_");
    EXPECT_EQ(file_name_of(std::string("x\0\n", 3)), "x__");
    EXPECT_LE(file_name_of(std::string(100'000, 'n')).size(), 255u);
}

}  // namespace
}  // namespace tilewright
