// Results that are rounded and saturated to bytes, four vectors at a time, against the interpreter.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "backend/cpu/run_kernel_test.h"

namespace tilewright::cpu {
namespace {

using namespace test;
using testing::HasSubstr;
using testing::Not;

/// 6 rows of 100 elements by the formula of @0, a float; 16 lanes, `registers` of the tile.
TileProgram rows(const std::string& type, const std::string& formula, const std::string& registers, int lanes) {
    return parse_tile_program(fmt::format(R"(tile stages {{
stages {{
program stages {{
  input x: f32[6, 100]
  y: {0}[6, 100] = [6, 100] {1} where @0 = x[i0, i1]  ; y ""
  output y
}}
}}
axes m="6" n="100"
stage 0 over [m n]
compute 0 vector n lanes {3} registers [{2}] order [m n] padding partition
}}
)",
                                          type, formula, registers, lanes));
}

/// Ties, numbers around both bounds and far outside of them, infinities and NaN.
Tensor reals() {
    Tensor x(DType::F32, {6, 100});
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, static_cast<double>(i) - 300 + (i % 3 == 0 ? 0.5 : 0.25));
    const double inf = std::numeric_limits<double>::infinity();
    const double special[] = {inf,   -inf,  std::numeric_limits<double>::quiet_NaN(), 3e9, -3e9, 0x1p30, -0x1p31,
                              32768, -32769};
    for (int64_t i = 0; i < 9; ++i) x.set(17 * i, special[i]);
    return x;
}

/// A table of 256 numbers by a byte: (k * 7 + 3) % 256, less 128 for i8.
std::string table(int less) {
    std::string out = "table{";
    for (int k = 0; k < 256; ++k) out += fmt::format("{}{}", k == 0 ? "" : ", ", (k * 7 + 3) % 256 - less);
    return out + "}";
}

void expect_exact(const std::string& type, const std::string& formula) {
    for (const Target* isa : {&host(), &avx512(), &avx2()}) {
        if (!runs_here(*isa)) continue;
        const int lanes = isa->vector_bits / 32;
        for (const char* registers : {"m=1 n=64", "m=3 n=32", "m=2 n=16", "n=128"})
            EXPECT_EQ(disagreement(rows(type, formula, registers, lanes), {reals()}, 0, *isa), "")
                << formula << " " << registers << " " << isa->vector_bits;
    }
}

TEST(ByteResults, RoundHalfToEvenAndSaturate) {
    for (const char* zero : {"0.0", "1.0", "2.0", "127.0", "255.0"})
        expect_exact("u8", fmt::format("u8(add(round(@0), {}))", zero));
    expect_exact("u8", "u8(round(@0))");
    for (const char* zero : {"-128.0", "-1.0", "3.0", "127.0"})
        expect_exact("i8", fmt::format("i8(add(round(@0), {}))", zero));
    expect_exact("i8", "i8(round(@0))");
}

TEST(ByteResults, AreLookedUpInTables) {
    expect_exact("u8", "u8(" + table(0) + "(i64(u8(add(round(@0), 5.0)))))");
    expect_exact("i8", "i8(" + table(128) + "(i64(u8(round(@0)))))");
    expect_exact("u8", "u8(" + table(0) + "(add(i64(i8(add(round(@0), 5.0))), 128:i64)))");
    expect_exact("i8", "i8(" + table(128) + "(add(i64(i8(round(@0))), 128:i64)))");
}

TEST(ByteResults, OfOtherFunctionsAreConvertedOneByOne) {
    expect_exact("u8", "u8(add(round(@0), 0.5))");
    expect_exact("u8", "u8(@0)");
    expect_exact("u8", "u8(add(round(@0), 300.0))");
}

TEST(ByteResults, ArePackedAndPermutedWithoutGathers) {
    const TileProgram packed = rows("u8", "u8(add(round(@0), 5.0))", "n=64", 16);
    EXPECT_THAT(print_llvm(packed, avx512()), HasSubstr("packuswb.512"));
    EXPECT_THAT(print_llvm(rows("u8", "u8(add(round(@0), 5.0))", "n=32", 8), avx2()), HasSubstr("avx2.packuswb"));
    const TileProgram looked_up = rows("u8", "u8(" + table(0) + "(i64(u8(round(@0)))))", "n=64", 16);
    const Target with = restricted(generic_target(VectorIsa::avx512), code_level_from_string("avx512-fp16").value());
    EXPECT_THAT(print_llvm(looked_up, with), HasSubstr("vpermi2var.qi.512"));
    EXPECT_THAT(print_llvm(looked_up, with), Not(HasSubstr("gather")));
    EXPECT_THAT(print_llvm(looked_up, restricted(generic_target(VectorIsa::avx512),
                                                 code_level_from_string("avx512-vnni").value())),
                HasSubstr("gather"));
}

}  // namespace
}  // namespace tilewright::cpu
