// The library operations that kernels correspond to.

#include "libraries/operation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tile/library_products_test.h"

namespace tilewright {
namespace {

using test::product_then;
using test::scores_of_heads;
using testing::ElementsAre;
using testing::HasSubstr;

LibraryOperation library_op_of(const std::string& text, const std::vector<bool>& weights = {}) {
    const auto found = library_operations(parse_program(text), weights);
    if (const auto* refusal = std::get_if<Refusal>(&found)) {
        ADD_FAILURE() << refusal->reason << "\n" << text;
        return {};
    }
    return std::get<std::vector<LibraryOperation>>(found).front();
}

std::string reason_against(const std::string& text, const std::vector<bool>& weights = {}) {
    const auto found = library_operations(parse_program(text), weights);
    const auto* refusal = std::get_if<Refusal>(&found);
    return refusal == nullptr ? "nothing" : refusal->reason;
}

TEST(LibraryOperation, IsAProductWithWhatFollows) {
    const LibraryOperation plain = library_op_of(product_then(""));
    EXPECT_FALSE(plain.convolution);
    EXPECT_THAT(plain.data.dims, ElementsAre(48, 32));
    EXPECT_THAT(plain.data.strides, ElementsAre(32, 1));
    EXPECT_THAT(plain.weights.dims, ElementsAre(32, 64));
    EXPECT_THAT(plain.result.dims, ElementsAre(48, 64));
    EXPECT_EQ(plain.activation, Activation::None);
    EXPECT_TRUE(plain.added.empty());

    const LibraryOperation biased = library_op_of(product_then(" then max(add(acc, @2), 0.0)", "f32[64]"));
    EXPECT_EQ(biased.activation, Activation::Relu);
    ASSERT_EQ(biased.added.size(), 1u);
    EXPECT_TRUE(biased.is_bias(0));
    const LibraryOperation residual = library_op_of(product_then(" then add(acc, @2)", "f32[48, 64]", "i0, i1"));
    ASSERT_EQ(residual.added.size(), 1u);
    EXPECT_FALSE(residual.is_bias(0));
    EXPECT_THAT(residual.added[0].dims, ElementsAre(48, 64));
    const LibraryOperation by_row = library_op_of(product_then(" then add(acc, @2)", "f32[48]", "i0"));
    EXPECT_THAT(by_row.added.at(0).dims, ElementsAre(48, 1));
    EXPECT_DOUBLE_EQ(library_op_of(product_then(" then mul(acc, 0.125)")).scale, 0.125);
}

TEST(LibraryOperation, KnowsActivationsByWhatTheyAre) {
    const std::string x = "add(acc, @2)";
    const auto of = [&](const std::string& then) {
        return library_op_of(product_then(" then " + then, "f32[64]")).activation;
    };
    EXPECT_EQ(of("mul(mul(" + x + ", 0.5), add(erf(mul(" + x + ", 0.7071067811865476)), 1.0))"), Activation::Gelu);
    EXPECT_EQ(of("mul(mul(add(erf(mul(" + x + ", 0.7071067811865476)), 1.0), " + x + "), 0.5)"), Activation::Gelu);
    EXPECT_EQ(of("div(" + x + ", add(exp(neg(" + x + ")), 1.0))"), Activation::Silu);
    EXPECT_EQ(of("div(1.0, add(exp(neg(" + x + ")), 1.0))"), Activation::Sigmoid);
    EXPECT_EQ(of("tanh(" + x + ")"), Activation::Tanh);
    EXPECT_THAT(reason_against(product_then(" then exp(acc)")), HasSubstr("activation"));
    EXPECT_THAT(reason_against(product_then(" then max(acc, 1.0)")), HasSubstr("activation"));
    EXPECT_EQ(of("min(max(" + x + ", 0.0), 6.0)"), Activation::ClippedRelu);
    EXPECT_EQ(of("max(min(" + x + ", 6.0), 0.0)"), Activation::ClippedRelu);
    EXPECT_EQ(library_op_of(product_then(" then min(max(acc, 0.0), 2.5)")).most, 2.5);
    EXPECT_THAT(reason_against(product_then(" then min(max(acc, -1.0), 1.0)")), HasSubstr("activation"));
    EXPECT_THAT(reason_against(product_then(" then max(mul(acc, 0.5), 0.0)")), HasSubstr("activation"));
    EXPECT_THAT(reason_against(product_then(" then mul(acc, @2)", "f32[64]")), HasSubstr("activation"));
    EXPECT_THAT(reason_against(product_then(" then sqrt(acc)")), HasSubstr("sqrt"));
}

TEST(LibraryOperation, KnowsHowTensorsLie) {
    const LibraryOperation scores = library_op_of(scores_of_heads("f32"));
    EXPECT_THAT(scores.data.dims, ElementsAre(2, 8, 40, 16));
    EXPECT_THAT(scores.data.strides, ElementsAre(5120, 16, 128, 1));
    EXPECT_THAT(scores.weights.dims, ElementsAre(2, 8, 16, 48));
    EXPECT_THAT(scores.weights.strides, ElementsAre(6144, 768, 1, 16));
    // Contiguous rows of a batch merge. The right operand is the one with the result's columns.
    const LibraryOperation rows = library_op_of(R"(program p {
  input b: f32[32, 40]
  input a: f32[3, 20, 32]
  c: f32[3, 20, 40] = [3, 20, 40] sum(i3 < 32) mul(@0, @1) where @0 = b[i3, i2], @1 = a[i0, i1, i3]
  output c
})");
    EXPECT_THAT(rows.data.dims, ElementsAre(60, 32));
    EXPECT_EQ(rows.data.tensor, 1u);
    // Packed weights are described by positions instead of strides.
    const std::string packed = R"(program p {
  input a: f32[20, 32]
  input b: f32[3, 32, 16]
  c: f32[20, 48] = [20, 48] sum(i2 < 32) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i1 // 16, i2, i1 % 16]
  output c
})";
    EXPECT_THAT(reason_against(packed), HasSubstr("strides"));
    const LibraryOperation product = library_op_of(packed, {false, true});
    EXPECT_THAT(product.weights.dims, ElementsAre(32, 48));
    EXPECT_THAT(product.weights.places.at(0), testing::Contains(31 * 16));
    EXPECT_EQ(product.weights.places.at(1).at(17), 32 * 16 + 1);
}

TEST(LibraryOperation, SeesMatricesInTensorsOfOneDimension) {
    const LibraryOperation op = library_op_of(R"(program p {
  input a: f32[640]
  input b: f32[2048]
  input c: f32[32]
  y: f32[320] = [32, 10] -> [i0 + 32*i1] sum(i2 < 64) mul(@0, @1) then add(acc, @2) where @0 = a[64*i1 + i2], @1 = b[i0 % 16 + 1024*(i0 // 16) + 16*i2], @2 = c[i0]
  output y
})",
                                              {false, true, true});
    EXPECT_FALSE(op.convolution);
    EXPECT_THAT(op.data.dims, ElementsAre(10, 64));
    EXPECT_THAT(op.weights.dims, ElementsAre(64, 32));
    EXPECT_EQ(op.weights.places.at(1).at(17), 1025);
    EXPECT_THAT(op.result.strides, ElementsAre(32, 1));
}

/// Images in NHWC layout, 3x3 windows with stride 2, padded by 1.
std::string picture(const std::string& valid, const std::string& rows = "2*i1 + i5 - 1") {
    return "program p {\n  input x: f32[1, 16, 20, 8]\n  input w: f32[24, 8, 3, 3]\n  input b: f32[24]\n"
           "  y: f32[1, 8, 10, 24] = [1, 8, 10, 24] sum(i4 < 8, i5 < 3, i6 < 3) mul(@0, @1) then max(add(acc, @2), "
           "0.0) "
           "where @0 = x[i0, " +
           rows + ", 2*i2 + i6 - 1, i4]" + valid + ", @1 = w[i3, i4, i5, i6], @2 = b[i3]\n  output y\n}";
}

TEST(LibraryOperation, IsAConvolutionOfPictures) {
    const std::string valid = " when 2*i1 + i5 - 1 >= 0 and -2*i1 - i5 + 16 >= 0 and 2*i2 + i6 - 1 >= 0 else 0";
    const LibraryOperation c = library_op_of(picture(valid), {false, true, true});
    EXPECT_TRUE(c.convolution);
    EXPECT_THAT(c.data.dims, ElementsAre(1, 8, 16, 20));
    EXPECT_THAT(c.data.strides, ElementsAre(2560, 1, 160, 8));
    EXPECT_THAT(c.weights.dims, ElementsAre(1, 24, 8, 3, 3));
    EXPECT_THAT(c.result.dims, ElementsAre(1, 24, 8, 10));
    EXPECT_THAT(c.strides, ElementsAre(2, 2));
    EXPECT_THAT(c.dilations, ElementsAre(1, 1));
    EXPECT_THAT(c.begins, ElementsAre(1, 1));
    EXPECT_THAT(c.ends, ElementsAre(0, 0));
    EXPECT_TRUE(c.is_bias(0));
    EXPECT_EQ(c.activation, Activation::Relu);
    EXPECT_TRUE(c.weights.is_constant());
    const LibraryOperation computed = library_op_of(picture(valid));
    EXPECT_FALSE(computed.weights.is_constant());
    EXPECT_THAT(computed.weights.strides, ElementsAre(1728, 72, 9, 3, 1));
    EXPECT_THAT(reason_against(picture(" when i1 + i2 - 1 >= 0 else 0"), {false, true, true}), HasSubstr("conditions"));
    EXPECT_THAT(reason_against(picture(" when 2*i1 + i5 - 1 >= 0 and 2*i2 + i6 - 1 >= 0 else 1"), {false, true, true}),
                HasSubstr("zero"));
}

/// The rows y of the result for which 2*i + k = y + 1 has an i: those that a stride of 2 divides.
std::string transposed_picture(const std::string& valid) {
    return "program p {\n  input x: f32[1, 5, 7, 8]\n  input w: f32[8, 24, 4, 4]\n"
           "  y: f32[1, 10, 14, 24] = [1, 10, 14, 24] sum(i4 < 8, i5 < 4, i6 < 4) mul(@0, @1) where @0 = x[i0, "
           "(i1 + 1 - i5) // 2, (i2 + 1 - i6) // 2, i4]" +
           valid + ", @1 = w[i4, i3, i5, i6]\n  output y\n}";
}

TEST(LibraryOperation, IsATransposedConvolutionOfPictures) {
    const std::string rows = "(i1 + 1 - i5) // 2 >= 0 and 4 - (i1 + 1 - i5) // 2 >= 0";
    const std::string columns = "(i2 + 1 - i6) // 2 >= 0 and 6 - (i2 + 1 - i6) // 2 >= 0";
    const std::string divides = " and -((i1 + 1 - i5) % 2) >= 0 and -((i2 + 1 - i6) % 2) >= 0";
    const LibraryOperation c =
        library_op_of(transposed_picture(" when " + rows + " and " + columns + divides + " else 0"));
    EXPECT_TRUE(c.convolution);
    EXPECT_TRUE(c.transposed);
    EXPECT_THAT(c.data.dims, ElementsAre(1, 8, 5, 7));
    EXPECT_THAT(c.data.strides, ElementsAre(280, 1, 56, 8));
    EXPECT_THAT(c.weights.dims, ElementsAre(1, 24, 8, 4, 4));
    EXPECT_THAT(c.weights.strides, ElementsAre(3072, 16, 384, 4, 1));
    EXPECT_THAT(c.result.dims, ElementsAre(1, 24, 10, 14));
    EXPECT_THAT(c.strides, ElementsAre(2, 2));
    EXPECT_THAT(c.dilations, ElementsAre(1, 1));
    EXPECT_THAT(c.begins, ElementsAre(1, 1));
    EXPECT_THAT(c.ends, ElementsAre(1, 1));
    // Where 2 does not divide it, the quotient would be read as well: rows are repeated.
    EXPECT_NE(reason_against(transposed_picture(" when " + rows + " and " + columns + " else 0")), "nothing");
    EXPECT_NE(reason_against(transposed_picture(" when " + rows + " and " + columns +
                                                " and -((i1 + 1 - i5) % 2) >= 0 and -((i2 + 2 - i6) % 2) >= 0 else 0")),
              "nothing");
    EXPECT_NE(reason_against(transposed_picture(" when " + rows + " and " + columns + divides + " else 1")), "nothing");
}

TEST(LibraryOperation, IsNothingElse) {
    EXPECT_THAT(reason_against(R"(program p {
  input a: f32[8, 16]
  s: f32[8] = [8] sum(i1 < 16) @0 where @0 = a[i0, i1]
  output s
})"),
                HasSubstr("not a sum of products"));
    EXPECT_THAT(reason_against(R"(program p {
  input a: f32[8, 16]
  input b: f32[16, 8]
  s: f32[8, 8] = [8, 8] sum(i2 < 16) mul(max(@0, 0.0), @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  output s
})"),
                HasSubstr("not plain reads"));
    EXPECT_THAT(reason_against(R"(program p {
  input a: f32[$m, 16]
  input b: f32[16, 8]
  s: f32[$m, 8] = [$m, 8] sum(i2 < 16) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  output s
})"),
                HasSubstr("dynamic"));
    EXPECT_THAT(reason_against(R"(program p {
  input a: f64[8, 16]
  input b: f64[16, 8]
  s: f64[8, 8] = [8, 8] sum(i2 < 16) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  output s
})"),
                HasSubstr("not a sum of products"));
}

TEST(LibraryOperation, HasTheTypesOfItsOperands) {
    const LibraryOperation op = library_op_of(R"(program p {
  input a: f16[8, 16]
  input b: f16[16, 8]
  s: f32[8, 8] = [8, 8] sum(i2 < 16) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  output s
})");
    EXPECT_EQ(op.data.type, DType::F16);
    EXPECT_EQ(op.weights.type, DType::F16);
    EXPECT_EQ(op.result.type, DType::F32);
}

TEST(LibraryOperation, HasUpToThreeSpatialDimensions) {
    const LibraryOperation op = library_op_of(R"(program p {
  input x: f32[1, 3, 5, 6, 7]
  input w: f32[4, 3, 2, 3, 3]
  y: f32[1, 4, 4, 4, 5] = [4, 4, 4, 5] -> [0, i0, i1, i2, i3] sum(i4 < 3, i5 < 2, i6 < 3, i7 < 3) mul(@0, @1) where @0 = x[0, i4, i1 + i5, i2 + i6, i3 + i7], @1 = w[i0, i4, i5, i6, i7]
  output y
})");
    EXPECT_EQ(op.spatial_dims(), 3u);
    EXPECT_THAT(op.data.dims, ElementsAre(1, 3, 5, 6, 7));
    EXPECT_THAT(op.weights.dims, ElementsAre(1, 4, 3, 2, 3, 3));
    // One of three dimensions has no window and does not merge with the batch.
    const LibraryOperation flat = library_op_of(R"(program p {
  input x: f32[2, 3, 5, 6, 7]
  input w: f32[4, 3, 3, 3]
  y: f32[2, 4, 5, 4, 5] = [2, 4, 5, 4, 5] sum(i5 < 3, i6 < 3, i7 < 3) mul(@0, @1) where @0 = x[i0, i5, i2, i3 + i6, i4 + i7], @1 = w[i1, i5, i6, i7]
  output y
})");
    EXPECT_THAT(flat.data.dims, ElementsAre(2, 3, 5, 6, 7));
    EXPECT_THAT(flat.weights.dims, ElementsAre(1, 4, 3, 1, 3, 3));
    EXPECT_THAT(flat.strides, ElementsAre(1, 1, 1));
}

TEST(LibraryOperation, HasGroups) {
    const LibraryOperation op = library_op_of(R"(program p {
  input x: f32[2, 6, 6, 7]
  input w: f32[12, 2, 3, 3]
  input b: f32[12]
  y: f32[2, 12, 4, 5] = [2, 3, 4, 4, 5] -> [i0, 4*i1 + i2, i3, i4] sum(i5 < 2, i6 < 3, i7 < 3) mul(@0, @1) then add(acc, @2) where @0 = x[i0, 2*i1 + i5, i3 + i6, i4 + i7], @1 = w[4*i1 + i2, i5, i6, i7], @2 = b[4*i1 + i2]
  output y
})");
    EXPECT_EQ(op.spatial_dims(), 2u);
    EXPECT_THAT(op.data.dims, ElementsAre(2, 6, 6, 7));
    EXPECT_THAT(op.weights.dims, ElementsAre(3, 4, 2, 3, 3));
    EXPECT_THAT(op.result.dims, ElementsAre(2, 12, 4, 5));
    EXPECT_TRUE(op.is_bias(0));
}

/// The data of a convolution without padding has the strides of a product: it matches both operations.
TEST(LibraryOperation, HasTheFormsOfAConvolutionAndOfAProduct) {
    const auto forms = library_operations(parse_program(R"(program p {
  input x: f32[50, 16]
  input w: f32[3, 16, 64]
  y: f32[48, 64] = [48, 64] sum(i2 < 16, i3 < 3) mul(@0, @1) where @0 = x[i0 + i3, i2], @1 = w[i3, i2, i1]
  output y
})"));
    const auto& all = std::get<std::vector<LibraryOperation>>(forms);
    ASSERT_EQ(all.size(), 2u);
    EXPECT_TRUE(all[0].convolution);
    EXPECT_FALSE(all[1].convolution);
    EXPECT_THAT(all[1].data.dims, ElementsAre(48, 48));
    EXPECT_THAT(all[1].data.strides, ElementsAre(16, 1));
}

}  // namespace
}  // namespace tilewright
