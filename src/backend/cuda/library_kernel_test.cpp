// Which products cuBLASLt takes.

#include "backend/cuda/library_product.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/library_kernel.h"
#include "tile/library_products_test.h"
#include "tile/schedule_cases_test.h"

namespace tilewright::cuda {
namespace {

using tilewright::test::product_then;
using tilewright::test::scores_of_heads;

std::optional<LibraryProduct> of(const std::string& stages) {
    const auto forms = library_kernels(parse_program(stages));
    if (std::holds_alternative<Refusal>(forms)) return std::nullopt;
    for (const LibraryKernel& form : std::get<std::vector<LibraryKernel>>(forms))
        if (const auto* op = std::get_if<LibraryOperation>(&form)) {
            auto product = library_product(*op);
            if (auto* found = std::get_if<LibraryProduct>(&product)) return *found;
        }
    return std::nullopt;
}

TEST(LibraryProduct, IsAProductWithItsEpilogue) {
    const auto plain = of(product_then(""));
    ASSERT_TRUE(plain);
    EXPECT_EQ(plain->batch, 1);
    EXPECT_EQ(plain->rows, 48);
    EXPECT_EQ(plain->columns, 64);
    EXPECT_EQ(plain->sum, 32);
    EXPECT_EQ(plain->left, (LibraryProduct::Matrix{0, DType::F32, false, 32, 0}));
    EXPECT_EQ(plain->right, (LibraryProduct::Matrix{1, DType::F32, false, 64, 0}));
    EXPECT_EQ(plain->result, (LibraryProduct::Matrix{2, DType::F32, false, 64, 0}));
    EXPECT_FALSE(plain->bias);
    EXPECT_EQ(plain->flops(), 2.0 * 48 * 64 * 32);

    const auto biased = of(product_then(" then max(add(acc, @2), 0.0)", "f32[64]"));
    ASSERT_TRUE(biased);
    EXPECT_EQ(biased->bias, 2u);
    EXPECT_EQ(biased->activation, Activation::Relu);
    EXPECT_EQ(biased->result.tensor, 3u);

    const std::string x = "add(acc, @2)";
    const auto gelu = of(product_then(" then mul(mul(" + x + ", 0.5), add(tanh(mul(add(" + x + ", mul(mul(mul(" + x +
                                          ", " + x + "), " + x + "), 0.044715)), 0.7978845608028654)), 1.0))",
                                      "f32[64]"));
    ASSERT_TRUE(gelu);
    EXPECT_EQ(gelu->activation, Activation::GeluTanh);
    EXPECT_EQ(gelu->bias, 2u);
}

TEST(LibraryProduct, AddsAMatrixToTheScaledProduct) {
    const auto scaled = of(product_then(" then mul(acc, 0.5)"));
    ASSERT_TRUE(scaled);
    EXPECT_EQ(scaled->scale, 0.5);
    EXPECT_FALSE(scaled->added);
    const auto residual = of(R"(program p {
  input a: f16[48, 32]
  input b: f16[32, 64]
  input c: f16[64]
  input d: f16[48, 80]
  y: f16[48, 64] = [48, 64] sum(i2 < 32) mul(@0, @1) then max(add(@3, add(mul(acc, 1.0), @2)), 0.0) where @0 = a[i0, i2], @1 = b[i2, i1], @2 = c[i1], @3 = d[i0, i1 + 16]
  output y
})");
    ASSERT_TRUE(residual);
    EXPECT_EQ(residual->bias, 2u);
    EXPECT_EQ(residual->added, (LibraryProduct::Matrix{3, DType::F16, false, 80, 0, 16}));
    EXPECT_EQ(residual->alignment(256), 32) << "16 numbers of two bytes";
    EXPECT_EQ(residual->activation, Activation::Relu);
    const auto added = of(product_then(" then add(acc, @2)", "f32[48, 64]", "i0, i1"));
    ASSERT_TRUE(added);
    EXPECT_TRUE(added->added && !added->bias);
    EXPECT_FALSE(of(product_then(" then add(acc, @2)", "f16[48, 64]", "i0, i1"))) << "of another type than the result";
    EXPECT_FALSE(of(product_then(" then add(acc, @2)", "f32[64, 48]", "i1, i0"))) << "rows that are not contiguous";
}

TEST(LibraryProduct, IsNothingThatTheLibraryComputesOtherwise) {
    EXPECT_FALSE(of(product_then(" then tanh(acc)")));
    EXPECT_FALSE(of(product_then(" then max(acc, 1.0)")));
    EXPECT_FALSE(of(product_then(" then add(acc, @2)", "f32[48]", "i0")));  // an element a row
    // GELU by erf.
    EXPECT_FALSE(of(product_then(" then mul(mul(acc, 0.5), add(erf(mul(acc, 0.7071067811865475)), 1.0))")));
    // Computed operands, windows, dynamic sizes.
    EXPECT_FALSE(of(R"(program p {
  input a: f32[48, 32]
  input b: f32[32, 64]
  y: f32[48, 64] = [48, 64] sum(i2 < 32) mul(max(@0, 0.0), @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  output y
})"));
    EXPECT_FALSE(of(R"(program p {
  input a: f32[50, 16]
  input b: f32[3, 16, 64]
  y: f32[48, 64] = [48, 64] sum(i2 < 16, i3 < 3) mul(@0, @1) where @0 = a[i0 + i3, i2], @1 = b[i3, i2, i1]
  output y
})"));
    EXPECT_FALSE(of(schedule_cases::product("$m", "64", "48", "f32")));
}

TEST(LibraryProduct, KnowsHowMatricesLie) {
    const auto scores = of(scores_of_heads("f16"));
    EXPECT_FALSE(scores) << "two axes of a batch that are not one in q";
    const auto transposed = of(R"(program p {
  input q: f16[40, 8, 16]
  input k: f16[8, 48, 16]
  c: f16[8, 40, 48] = [8, 40, 48] sum(i3 < 16) mul(@0, @1) where @0 = q[i1, i0, i3], @1 = k[i0, i2, i3]
  output c
})");
    ASSERT_TRUE(transposed);
    EXPECT_EQ(transposed->batch, 8);
    EXPECT_EQ(transposed->left, (LibraryProduct::Matrix{0, DType::F16, false, 128, 16}));
    EXPECT_EQ(transposed->right, (LibraryProduct::Matrix{1, DType::F16, true, 16, 768}));
    EXPECT_EQ(transposed->result, (LibraryProduct::Matrix{2, DType::F16, false, 48, 1920}));
    // Columns of a wider tensor.
    const auto columns = of(R"(program p {
  input x: f16[48, 96]
  c: f16[48, 48] = [48, 48] sum(i2 < 32) mul(@0, @1) where @0 = x[i0, i2], @1 = x[i1, i2 + 64]
  output c
})");
    ASSERT_TRUE(columns);
    EXPECT_EQ(columns->left, (LibraryProduct::Matrix{0, DType::F16, false, 96, 0, 0}));
    EXPECT_EQ(columns->right, (LibraryProduct::Matrix{0, DType::F16, true, 96, 0, 64}));
    EXPECT_EQ(columns->alignment(256), 128) << "64 numbers of two bytes";
    EXPECT_FALSE(of(R"(program p {
  input x: f16[48, 96]
  c: f16[48, 48] = [48, 48] sum(i2 < 32) mul(@0, @1) where @0 = x[i0, i2], @1 = x[i1, i2 + 4]
  output c
})")) << "8 bytes";
    // Rows of a batch that lie behind each other are rows.
    const auto rows = of(R"(program p {
  input a: f32[3, 20, 32]
  input b: f32[32, 40]
  c: f32[3, 20, 40] = [3, 20, 40] sum(i3 < 32) mul(@0, @1) where @0 = a[i0, i1, i3], @1 = b[i3, i2]
  output c
})");
    ASSERT_TRUE(rows);
    EXPECT_EQ(rows->batch, 1);
    EXPECT_EQ(rows->rows, 60);
}

}  // namespace
}  // namespace tilewright::cuda
