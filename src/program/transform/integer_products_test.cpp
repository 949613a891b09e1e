#include "program/transform/integer_products.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "program/text.h"

namespace tilewright {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Numbers that fill the type: 8-bit ones their whole range, floats around 0.
Tensor numbers(const Program& p, ValueId v) {
    const DType t = p.values[v].dtype;
    Tensor out(t, evaluate(p.values[v].shape, Bindings()));
    for (int64_t i = 0; i < out.count(); ++i) {
        const int64_t k = (i * 37 + i / 7) % 256;
        out.set(i, t == DType::U8 || t == DType::I64 ? static_cast<double>(k)
                   : t == DType::I8                  ? static_cast<double>(k - 128)
                                                     : 0.01 * static_cast<double>(k % 5 + 1));
    }
    return out;
}

/// The program, whose inputs with names that start with "w" become constants, those with "z" zero points of 10 and 20.
Program parsed(const std::string& text) {
    Program p = parse_program("program p {\n" + text + "}\n");
    std::vector<ValueId> inputs;
    for (const ValueId v : p.inputs) {
        const std::string& name = p.values[v].name;
        if (name.starts_with('w')) {
            p.constants.emplace(v, numbers(p, v));
        } else if (name.starts_with('z')) {
            Tensor t(p.values[v].dtype, evaluate(p.values[v].shape, Bindings()));
            for (int64_t i = 0; i < t.count(); ++i) t.set(i, name == "z1" ? 10 : 20);
            p.constants.emplace(v, std::move(t));
        } else {
            inputs.push_back(v);
        }
    }
    p.inputs = std::move(inputs);
    return p;
}

double difference(const Program& a, const Program& b) {
    std::vector<Tensor> inputs;
    for (const ValueId v : a.inputs) inputs.push_back(numbers(a, v));
    const Tensor x = interpret(a, inputs)[0], y = interpret(b, inputs)[0];
    double largest = 1e-30, off = 0;
    for (int64_t i = 0; i < x.count(); ++i) {
        largest = std::max(largest, std::abs(x.get(i)));
        off = std::max(off, std::abs(x.get(i) - y.get(i)));
    }
    return off / largest;
}

/// Computes the same, with `products` sums of bytes and `shifted` operands moved by 128.
std::string expect(const std::string& text, size_t products, size_t shifted, double tolerance = 0) {
    const Program p = parsed(text);
    IntegerProducts report;
    const Program q = integer_products(p, &report);
    EXPECT_EQ(verify(q), std::vector<std::string>()) << print(q);
    EXPECT_EQ(report.products, products) << text;
    EXPECT_EQ(report.shifted, shifted) << text;
    EXPECT_LE(difference(p, q), tolerance) << print(q);
    return print(q);
}

/// A product of dequantised tensors: x (`type`, zero point `zero`) and weights with a scale a column.
std::string dequantised(const std::string& type, const std::string& zero, int k = 24) {
    return fmt::format(R"TW(  input x: {0}[6, {2}]
  input w: i8[{2}, 16]
  input ws: f32[16]
  input z1: {0}[]
  xf: f32[6, {2}] = [6, {2}] mul(f32(sub(i32(@0), {1})), 0.5f) where @0 = x[i0, i1], @1 = z1[]  ; xf DequantizeLinear
  wf: f32[{2}, 16] = [{2}, 16] mul(f32(i32(@0)), @1) where @0 = w[i0, i1], @1 = ws[i1]  ; wf DequantizeLinear
  y: f32[6, 16] = [6, 16] sum(i2 < {2}) mul(@0, @1) where @0 = xf[i0, i2], @1 = wf[i2, i1]  ; y MatMul
  output y
)TW",
                       type, zero, k);
}

TEST(IntegerProducts, MultiplyBytesAndFoldZeroPointsAndScales) {
    const std::string text = expect(dequantised("u8", "i32(@1)"), 1, 0, 1e-6);
    EXPECT_THAT(text, HasSubstr("sum(i2 < 24) mul(i32(@0), i32(@1)) where @0 = x[i0, i2], @1 = w[i2, i1]"));
    EXPECT_THAT(text, Not(HasSubstr("xf")));
    EXPECT_THAT(text, HasSubstr("sum(i1 < 24) mul(i32(@0), 10:i32)"));  // of weights: a constant later
    expect(dequantised("u8", "10:i32"), 1, 0, 1e-6);
    EXPECT_THAT(expect(dequantised("u8", "0:i32"), 1, 0, 1e-6), Not(HasSubstr("sum(i1 < 24)")));
}

TEST(IntegerProducts, MoveSignedOperandsTo0To255) {
    const std::string text = expect(dequantised("i8", "i32(@1)"), 1, 1, 1e-6);
    EXPECT_THAT(text, HasSubstr("u8(add(i32(@0), 128:i32))"));
    EXPECT_THAT(text, HasSubstr("mul(i32(@0), 138:i32)"));
}

TEST(IntegerProducts, LeaveSumsThatCouldExceed31Bits) {
    expect(dequantised("u8", "i32(@1)", 33025), 1, 0, 1e-6);
    EXPECT_EQ(expect(dequantised("u8", "i32(@1)", 33026), 0, 0), print(parsed(dequantised("u8", "i32(@1)", 33026))));
}

/// MatMulInteger of x with a zero point that is computed, and weights with one a column.
TEST(IntegerProducts, SubtractComputedZeroPointsTimesSums) {
    const std::string text = expect(R"TW(  input x: u8[6, 24]
  input cx: u8[6]
  input w: u8[24, 16]
  input z2: u8[16]
  xc: i32[6, 24] = [6, 24] sub(i32(@0), i32(@1)) where @0 = x[i0, i1], @1 = cx[i0]  ; xc Op
  wc: i32[24, 16] = [24, 16] sub(i32(@0), i32(@1)) where @0 = w[i0, i1], @1 = z2[i1]  ; wc Op
  y: i32[6, 16] = [6, 16] sum(i2 < 24) mul(@0, @1) where @0 = xc[i0, i2], @1 = wc[i2, i1]  ; y Op
  output y
)TW",
                                    1, 0);
    EXPECT_THAT(text, HasSubstr("i8(add(i32(@0), -128:i32))"));  // the weights
}

TEST(IntegerProducts, OfTwoComputedTensorsHaveTheSumsOfBoth) {
    const std::string text = expect(R"TW(  input a: u8[2, 6, 24]
  input b: u8[2, 16, 24]
  ac: f32[2, 6, 24] = [2, 6, 24] mul(f32(sub(i32(@0), 3:i32)), 0.25f) where @0 = a[i0, i1, i2]  ; ac Op
  bc: f32[2, 16, 24] = [2, 16, 24] mul(f32(sub(i32(@0), 7:i32)), 0.5f) where @0 = b[i0, i1, i2]  ; bc Op
  bt: f32[2, 24, 16] = [2, 24, 16] @0 where @0 = bc[i0, i2, i1]  ; bt Transpose
  y: f32[2, 6, 16] = [2, 6, 16] sum(i3 < 24) mul(@0, @1) where @0 = ac[i0, i1, i3], @1 = bt[i0, i3, i2]  ; y Op
  output y
)TW",
                                    1, 1, 1e-6);
    EXPECT_THAT(text, HasSubstr("mul(f32("));
}

/// A convolution with padding of a tensor with this zero point.
std::string padded(const std::string& zero) {
    return fmt::format(R"TW(  input x: u8[1, 5, 9, 9]
  input cx: u8[1]
  input w: i8[8, 5, 3, 3]
  xc: i32[1, 5, 9, 9] = [1, 5, 9, 9] sub(i32(@0), {0}) where @0 = x[0, i1, i2, i3], @1 = cx[0]  ; xc Op
  wc: i32[8, 5, 3, 3] = [8, 5, 3, 3] i32(@0) where @0 = w[i0, i1, i2, i3]  ; wc Op
  y: i32[1, 8, 9, 9] = [1, 8, 9, 9] sum(i4 < 5, i5 < 3, i6 < 3) mul(@0, @1) where @0 = xc[0, i4, i2 + i5 - 1, i3 + i6 - 1] when i2 + i5 - 1 >= 0 and -i2 - i5 + 9 >= 0 and i3 + i6 - 1 >= 0 and -i3 - i6 + 9 >= 0 else 0, @1 = wc[i1, i4, i5, i6]  ; y Op
  output y
)TW",
                       zero);
}

TEST(IntegerProducts, PadWithTheZeroPoint) {
    EXPECT_THAT(expect(padded("10:i32"), 1, 0), HasSubstr("else 10"));
    const std::string computed = expect(padded("i32(@1)"), 1, 0);  // an input
    EXPECT_THAT(computed, HasSubstr("select(ge("));
    EXPECT_THAT(computed, HasSubstr("mul(i32(@0), i32(@1))"));
}

/// Quantised, dequantised, transposed and quantised again.
std::string requantised(const std::string& zero, const std::string& scale) {
    return fmt::format(R"TW(  input x: u8[6, 24]
  xf: f32[6, 24] = [6, 24] mul(f32(sub(i32(@0), 10:i32)), 0.3f) where @0 = x[i0, i1]  ; xf Op
  xt: f32[24, 6] = [24, 6] @0 where @0 = xf[i1, i0]  ; xt Transpose
  r: f32[24, 6] = [24, 6] div(@0, {1}) where @0 = xt[i0, i1]  ; r Op
  y: u8[24, 6] = [24, 6] u8(add(round(@0), {0})) where @0 = r[i0, i1]  ; y Op
  output y
)TW",
                       zero, scale);
}

TEST(IntegerProducts, CopyWhatIsQuantisedAsItWas) {
    const auto of = [](const std::string& text) {
        const Program p = parsed(text);
        IntegerProducts report;
        const Program q = integer_products(p, &report);
        EXPECT_EQ(difference(p, q), 0);
        return report.identities;
    };
    EXPECT_EQ(of(requantised("10.0", "0.3f")), 1U);
    EXPECT_THAT(expect(requantised("10.0", "0.3f"), 0, 0), HasSubstr("y: u8[24, 6] = [24, 6] @0 where @0 = x[i1, i0]"));
    EXPECT_EQ(of(requantised("11.0", "0.3f")), 0U);
    EXPECT_EQ(of(requantised("10.0", "0.31f")), 0U);
}

TEST(IntegerProducts, TakeTheLargestIntegerOfWhatIsQuantisedAsItWas) {
    const auto pooled = [](const std::string& scale) {
        return fmt::format(R"TW(  input x: u8[3, 10, 10]
  xf: f32[3, 10, 10] = [3, 10, 10] mul(f32(sub(i32(@0), 10:i32)), 0.3f) where @0 = x[i0, i1, i2]  ; xf Op
  m: f32[3, 5, 5] = [3, 5, 5] max(i3 < 3, i4 < 3) @0 where @0 = xf[i0, 2*i1 + i3 - 1, 2*i2 + i4 - 1] when 2*i1 + i3 - 1 >= 0 and 2*i2 + i4 - 1 >= 0 else -inf  ; m MaxPool
  y: u8[3, 5, 5] = [3, 5, 5] u8(add(round(div(@0, {})), 10.0)) where @0 = m[i0, i1, i2]  ; y Op
  output y
)TW",
                           scale);
    };
    EXPECT_THAT(expect(pooled("0.3f"), 0, 0),
                HasSubstr("y: u8[3, 5, 5] = [3, 5, 5] max(i3 < 3, i4 < 3) @0 where @0 = x["));
    EXPECT_THAT(expect(pooled("0.31f"), 0, 0), HasSubstr("max(i3 < 3, i4 < 3) @0 where @0 = xf["));
}

TEST(IntegerProducts, CopyRowsOfATableThatIsQuantisedAsItWas) {
    const std::string text = R"TW(  input ids: i64[6]
  input x: u8[30, 24]
  xf: f32[30, 24] = [30, 24] mul(f32(sub(i32(@0), 10:i32)), 0.3f) where @0 = x[i0, i1]  ; xf Op
  xg: f32[6, 24] = [6, 24] @1 where @0 = ids[i0], @1 = xf[@0 % 30, i1]  ; xg Gather
  y: u8[6, 24] = [6, 24] u8(add(round(div(@0, 0.3f)), 10.0)) where @0 = xg[i0, i1]  ; y Op
  output y
)TW";
    EXPECT_THAT(expect(text, 0, 0), HasSubstr("y: u8[6, 24] = [6, 24] @1 where @0 = ids[i0], @1 = x[@0 % 30, i1]"));
}

TEST(IntegerProducts, KeepWeightsThatAreReadOnceAsBytes) {
    const auto product = [](int rows) {
        return fmt::format(R"TW(  input x: f32[{0}, 24]
  input w: i8[16, 24]
  input ws: f32[16]
  wf: f32[16, 24] = [16, 24] mul(f32(i32(@0)), @1) where @0 = w[i0, i1], @1 = ws[i0]  ; wf Op
  y: f32[{0}, 16] = [{0}, 16] sum(i2 < 24) mul(@0, @1) where @0 = x[i0, i2], @1 = wf[i1, i2]  ; y Op
  output y
)TW",
                           rows);
    };
    EXPECT_THAT(expect(product(1), 1, 0, 1e-6), HasSubstr("mul(@0, f32(@1)) where @0 = x["));
    expect(product(2), 0, 0);
}

/// A product of integers of one row: u8 minus 10, times i8.
std::string integers_of_one_row(int k) {
    return fmt::format(R"TW(  input x: u8[1, {0}]
  input w: i8[{0}, 16]
  xc: i32[1, {0}] = [1, {0}] sub(i32(@0), 10:i32) where @0 = x[i0, i1]  ; xc Op
  wc: i32[{0}, 16] = [{0}, 16] i32(@0) where @0 = w[i0, i1]  ; wc Op
  y: i32[1, 16] = [1, 16] sum(i2 < {0}) mul(@0, @1) where @0 = xc[0, i2], @1 = wc[i2, i1]  ; y Op
  output y
)TW",
                       k);
}

TEST(IntegerProducts, OfOneRowSumFloatsInBlocksThatAreExact) {
    EXPECT_THAT(expect(integers_of_one_row(512), 1, 0), HasSubstr("sum(i2 < 512) mul(@0, f32(@1))"));
    const std::string text = expect(integers_of_one_row(1280), 1, 0);
    EXPECT_THAT(text, HasSubstr("y/of_bytes: f32[1, 16, 4] = [1, 16, 4] sum(i3 < 320) mul(@0, f32(@1))"));
    EXPECT_THAT(text, HasSubstr("@1 = w[320*i2 + i3, i1]"));
    EXPECT_THAT(text, HasSubstr("sum(i2 < 4) i32(@0)"));
    expect(integers_of_one_row(1283), 0, 0);  // a prime number has no blocks
    expect(integers_of_one_row(8), 0, 0);
}

TEST(IntegerProducts, LeaveDifferencesFromLargeNumbers) {
    expect(dequantised("u8", "255:i32"), 1, 0, 1e-6);
    expect(dequantised("u8", "1000000:i32"), 0, 0);
}

TEST(IntegerProducts, OfDepthwiseConvolutionsReadBytesAndSumFloats) {
    const auto depthwise = [](int taps) {
        return fmt::format(R"TW(  input x: u8[4, 9, 9]
  input w: i8[4, {0}, {0}]
  input ws: f32[4]
  xf: f32[4, 9, 9] = [4, 9, 9] mul(f32(sub(i32(@0), 10:i32)), 0.5f) where @0 = x[i0, i1, i2]  ; xf Op
  wf: f32[4, {0}, {0}] = [4, {0}, {0}] mul(f32(i32(@0)), @1) where @0 = w[i0, i1, i2], @1 = ws[i0]  ; wf Op
  y: f32[4, 9, 9] = [4, 9, 9] sum(i3 < {0}, i4 < {0}) mul(@0, @1) where @0 = xf[i0, i1 + i3 - 1, i2 + i4 - 1] when i1 + i3 - 1 >= 0 and -i1 - i3 + 9 >= 0 and i2 + i4 - 1 >= 0 and -i2 - i4 + 9 >= 0 else 0, @1 = wf[i0, i3, i4]  ; y Op
  output y
)TW",
                           taps);
    };
    const std::string text = expect(depthwise(3), 1, 0, 1e-6);
    EXPECT_THAT(text, HasSubstr("mul(f32(@0), @1) where @0 = x["));
    EXPECT_THAT(text, HasSubstr("else 10, @1 = y/weights["));
    expect(depthwise(17), 0, 0);  // sums of more than 24 bits
}

TEST(IntegerProducts, OfIntegerDepthwiseConvolutionsSumFloatsToo) {
    EXPECT_THAT(expect(R"TW(  input x: u8[4, 9, 9]
  input w: i8[4, 3, 3]
  xc: i32[4, 9, 9] = [4, 9, 9] sub(i32(@0), 10:i32) where @0 = x[i0, i1, i2]  ; xc Op
  wc: i32[4, 3, 3] = [4, 3, 3] sub(i32(@0), 2:i32) where @0 = w[i0, i1, i2]  ; wc Op
  y: i32[4, 7, 7] = [4, 7, 7] sum(i3 < 3, i4 < 3) mul(@0, @1) where @0 = xc[i0, i1 + i3, i2 + i4], @1 = wc[i0, i3, i4]  ; y Op
  output y
)TW",
                       1, 0),
                HasSubstr("i32(sub(@0, @1))"));
}

TEST(IntegerProducts, OfDepthwiseConvolutionsMayHaveComputedZeroPoints) {
    const std::string text = expect(R"TW(  input x: u8[4, 9, 9]
  input cz: u8[]
  input w: i8[4, 3, 3]
  xc: i32[4, 9, 9] = [4, 9, 9] sub(i32(@0), i32(@1)) where @0 = x[i0, i1, i2], @1 = cz[]  ; xc Op
  wc: i32[4, 3, 3] = [4, 3, 3] i32(@0) where @0 = w[i0, i1, i2]  ; wc Op
  y: i32[4, 9, 9] = [4, 9, 9] sum(i3 < 3, i4 < 3) mul(@0, @1) where @0 = xc[i0, i1 + i3 - 1, i2 + i4 - 1] when i1 + i3 - 1 >= 0 and -i1 - i3 + 9 >= 0 and i2 + i4 - 1 >= 0 and -i2 - i4 + 9 >= 0 else 0, @1 = wc[i0, i3, i4]  ; y Op
  output y
)TW",
                                    1, 0);
    EXPECT_THAT(text, HasSubstr("u8[4, 11, 11]"));
    EXPECT_THAT(text, HasSubstr("i32(sub(@0, mul(@1, f32(@2))))"));
}

TEST(IntegerProducts, LeaveScalesAlongTheSum) {
    expect(R"TW(  input x: u8[6, 24]
  input w: i8[24, 16]
  input ws: f32[24]
  xf: f32[6, 24] = [6, 24] f32(i32(@0)) where @0 = x[i0, i1]  ; xf Op
  wf: f32[24, 16] = [24, 16] mul(f32(i32(@0)), @1) where @0 = w[i0, i1], @1 = ws[i0]  ; wf Op
  y: f32[6, 16] = [6, 16] sum(i2 < 24) mul(@0, @1) where @0 = xf[i0, i2], @1 = wf[i2, i1]  ; y Op
  output y
)TW",
           0, 0);
}

}  // namespace
}  // namespace tilewright
