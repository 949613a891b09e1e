#include "program/transform/quantised_weights.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "program/random_program.h"
#include "program/text.h"
#include "program/transform/fold.h"

namespace tilewright {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Numbers that fill a type of up to 8 bits, or small floats.
Tensor numbers(const Value& v) {
    Tensor out(v.dtype, evaluate(v.shape, {{*symbol("m").as_var(), 3}}));
    for (int64_t i = 0; i < out.count(); ++i) {
        const int64_t k = (i * 37 + i / 7) % 256;
        const bool nibble = v.dtype == DType::I4 || v.dtype == DType::U4;
        if (v.dtype == DType::F32 || v.dtype == DType::F16)
            out.set(i, 0.0625 * static_cast<double>(k % 31 - 12));
        else if (nibble)
            out.set(i, k % 16 - (v.dtype == DType::I4 ? 8 : 0));
        else
            out.set(i, v.dtype == DType::I8 ? k - 128 : v.dtype == DType::U16 ? 3 * k : k);
    }
    return out;
}

/// The program; inputs other than x are constants.
Program parsed(const std::string& text) {
    Program p = parse_program("program p {\n" + text + "}\n");
    std::vector<ValueId> inputs;
    for (const ValueId v : p.inputs)
        if (p.values[v].name == "x")
            inputs.push_back(v);
        else
            p.constants.emplace(v, numbers(p.values[v]));
    p.inputs = std::move(inputs);
    return p;
}

/// Computes the same with `products` quantised products; the new text.
std::string expect(const std::string& text, size_t products = 1, double tolerance = 1e-6) {
    const Program p = parsed(text);
    QuantisedWeights report;
    const Program q = quantised_weights(p, &report);
    EXPECT_EQ(verify(q), std::vector<std::string>()) << print(q);
    EXPECT_EQ(report.products, products) << text;
    const std::vector<Tensor> x = {numbers(p.values[p.inputs[0]])};
    EXPECT_LE(largest_difference(interpret(p, x), interpret(q, x)), tolerance) << print(q);
    if (products > 0) {
        EXPECT_EQ(print(fold_constants(q)), print(q));  // nothing is left to fold
    }
    return print(q);
}

/// MatMulNBits as it is lowered: two codes a byte, blocks of 32, zero points of 8 unless `zero` reads others.
std::string packed_bytes(const std::string& zero = "8.0f", const std::string& more = "",
                         const std::string& rows = "$m") {
    return fmt::format(R"TW(  input x: f32[{2}, 64]
  input q: u8[48, 32]
  input s: f32[48, 2]
{1}  w: f32[48, 64] = [48, 64] mul(sub(f32(and(shr(i32(@0), i32(mul(index(i1 % 2), 4))), 15:i32)), {0}), @1) where @0 = q[i0, i1 // 2], @1 = s[i0, i1 // 32]{3}  ; w MatMulNBits
  t: f32[64, 48] = [64, 48] @0 where @0 = w[i1, i0]  ; t MatMulNBits
  y: f32[{2}, 48] = [{2}, 48] sum(i2 < 64) mul(@0, @1) where @0 = x[i0, i2], @1 = t[i2, i1]  ; y MatMulNBits
  output y
)TW",
                       zero, more.empty() ? "" : "  input z: " + more + "\n", rows,
                       more.empty() ? "" : ", @2 = z[i0, i1 // 32]");
}

TEST(QuantisedWeights, ofFourBitsAreWordsOfEightCodes) {
    const std::string text = expect(packed_bytes());
    EXPECT_THAT(text, HasSubstr("y/codes: u32[8, 48]"));
    EXPECT_THAT(text, HasSubstr("y/scales: f32[2, 48]"));
    EXPECT_THAT(text, HasSubstr("sum(i2 < 2, i3 < 4, i4 < 8)"));
    EXPECT_THAT(text, HasSubstr("@0 = x[i0, 32*i2 + 8*i3 + i4]"));
    EXPECT_THAT(text, Not(HasSubstr("w: f32")));
}

TEST(QuantisedWeights, haveZeroPointsPerBlockUnlessAllAreEqual) {
    EXPECT_THAT(expect(packed_bytes("f32(@2)", "u8[48, 2]")), HasSubstr("y/zeros: f32[2, 48]"));
    EXPECT_THAT(expect(packed_bytes()), Not(HasSubstr("zeros")));
}

/// DequantizeLinear of weights [k, n] and a product.
std::string dequantised(const std::string& type, const std::string& scale, const std::string& index, int k = 64,
                        const std::string& rows = "$m") {
    return fmt::format(R"TW(  input x: f32[{4}, {3}]
  input q: {0}[{3}, 48]
  input s: {1}
  w: f32[{3}, 48] = [{3}, 48] mul(f32(i32(@0)), @1) where @0 = q[i0, i1], @1 = s[{2}]  ; w DequantizeLinear
  y: f32[{4}, 48] = [{4}, 48] sum(i2 < {3}) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]  ; y MatMul
  output y
)TW",
                       type, scale, index, k, rows);
}

TEST(QuantisedWeights, ofDequantizeLinearAreFoundAsWell) {
    EXPECT_THAT(expect(dequantised("i4", "f32[4, 48]", "i0 // 16, i1")), HasSubstr("sum(i2 < 4, i3 < 2, i4 < 8)"));
    EXPECT_THAT(expect(dequantised("u4", "f32[2, 48]", "i0 // 32, i1")), HasSubstr("table"));
}

TEST(QuantisedWeights, ofEightBitsStayBytes) {
    const std::string blocks = expect(dequantised("i8", "f32[2, 48]", "i0 // 32, i1"));
    EXPECT_THAT(blocks, HasSubstr("y/codes: i8[64, 48]"));
    EXPECT_THAT(blocks, HasSubstr("sum(i2 < 2, i3 < 32) mul(@0, mul(f32(@1), @2))"));
    EXPECT_THAT(expect(dequantised("u8", "f32[2, 48]", "i0 // 32, i1")), HasSubstr("y/codes: u8[64, 48]"));
}

TEST(QuantisedWeights, withOneScaleForAColumnAreScaledBehindTheSum) {
    const std::string text = expect(dequantised("i8", "f32[48]", "i1"));
    EXPECT_THAT(text, HasSubstr("sum(i2 < 64) mul(@0, f32(@1))"));
    EXPECT_THAT(text, HasSubstr("mul(@0, @1) where @0 = y/unscaled[i0, i1], @1 = y/scales[0, i1]"));
    EXPECT_THAT(expect(dequantised("i4", "f32[]", "")), HasSubstr("sum(i2 < 8, i3 < 8)"));
}

TEST(QuantisedWeights, areEvaluatedOneByOneWhereTheStoredByteDoesNotDecide) {
    // The number depends on its column as well: -8 to 8, more than a word of eight codes distinguishes.
    const std::string text = expect(R"TW(  input x: f32[$m, 64]
  input q: i4[64, 48]
  input s: f32[2, 48]
  w: f32[64, 48] = [64, 48] mul(select(lt(index(i1 - 24), 0), f32(@0), neg(f32(@0))), @1) where @0 = q[i0, i1], @1 = s[i0 // 32, i1]  ; w Op
  y: f32[$m, 48] = [$m, 48] sum(i2 < 64) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]  ; y MatMul
  output y
)TW");
    EXPECT_THAT(text, HasSubstr("y/codes: i8[64, 48]"));
}

TEST(QuantisedWeights, ofAFewDistinctNumbersHaveTwoBits) {
    const std::string text = packed_bytes();
    const std::string two = std::string(text).replace(text.find("15:i32"), 6, "3:i32");
    EXPECT_THAT(expect(two), HasSubstr("y/codes: u32[4, 48]"));
}

TEST(QuantisedWeights, areLeftAloneWhereFloatsAreFaster) {
    expect(dequantised("i8", "f32[2, 48]", "i0 // 32, i1", 64, "33"), 0);  // rows that share every decoded number
    expect(dequantised("i8", "f32[2, 48]", "i0 // 32, i1", 64, "32"), 1);
    expect(dequantised("i8", "f32[16, 48]", "i0 // 4, i1"), 0);      // short blocks
    expect(dequantised("i8", "f32[64, 48]", "63 - i0, i1"), 0);      // none
    expect(dequantised("u8", "f32[3, 48]", "i0 // 20, i1", 60), 0);  // blocks of no power of two
    expect(dequantised("u16", "f32[2, 48]", "i0 // 32, i1"), 0);     // more than 8 bits
    expect(R"TW(  input x: f32[$m, 64]
  input w: f32[64, 48]
  y: f32[$m, 48] = [$m, 48] sum(i2 < 64) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]  ; y MatMul
  output y
)TW",
           0);
}

TEST(QuantisedWeights, areMultipliedByRowsThatAreGathered) {
    expect(R"TW(  input x: f32[9, 64]
  input rows: i64[5]
  input q: i8[64, 48]
  input s: f32[2, 48]
  w: f32[64, 48] = [64, 48] mul(f32(i32(@0)), @1) where @0 = q[i0, i1], @1 = s[i0 // 32, i1]  ; w DequantizeLinear
  y: f32[5, 48] = [5, 48] sum(i2 < 64) mul(@1, @2) where @0 = rows[i0], @1 = x[@0 % 9, i2], @2 = w[i2, i1]  ; y Op
  output y
)TW");
}

TEST(QuantisedWeights, ofComputedNumbersAreNotConstants) {
    expect(R"TW(  input x: f32[64, 64]
  q: i8[64, 64] = [64, 64] i8(round(@0)) where @0 = x[i0, i1]  ; q Op
  w: f32[64, 64] = [64, 64] mul(f32(i32(@0)), 0.5f) where @0 = q[i0, i1]  ; w DequantizeLinear
  y: f32[64, 64] = [64, 64] sum(i2 < 64) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]  ; y MatMul
  output y
)TW",
           0);
}

}  // namespace
}  // namespace tilewright
