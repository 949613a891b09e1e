// Kernels that are cut at their sums compute what the whole kernel does.

#include "libraries/cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "libraries/cut_programs_test.h"
#include "libraries/kernel_library.h"
#include "program/random_program.h"

namespace tilewright {
namespace {

using test::CutCase;
using test::product_then;
using testing::HasSubstr;

/// A library of products and convolutions of operands of one type, with a bias and relu, and of nothing else.
bool takes(const Program& stages) {
    const auto found = library_operations(stages);
    const auto* forms = std::get_if<std::vector<LibraryOperation>>(&found);
    return forms != nullptr && std::any_of(forms->begin(), forms->end(), [](const LibraryOperation& op) {
               if (op.data.type != op.weights.type ||
                   (op.activation != Activation::None && op.activation != Activation::Relu))
                   return false;
               const bool batched = !op.convolution && op.result.dims.size() == 3;
               if (!op.convolution && (op.result.dims.size() > 3 || (batched && op.data.dims[0] != op.weights.dims[0])))
                   return false;
               return op.scale == 1 && (op.added.empty() || (op.added.size() == 1 && op.is_bias(0)));
           });
}

class CutKernel : public testing::TestWithParam<CutCase> {};

TEST_P(CutKernel, ComputesTheSame) {
    const CutCase& c = GetParam();
    const Program whole = parse_program(c.text);
    const auto cut = cut_at_sums(whole, c.precision, takes);
    ASSERT_TRUE(cut) << c.text;
    const std::string text = print(cut->stages);
    SCOPED_TRACE(text);
    EXPECT_THAT(verify(cut->stages), testing::IsEmpty());
    EXPECT_THAT(text, HasSubstr(c.sum));
    EXPECT_EQ(cut->stages.primitives.size(), c.primitives);
    for (const PrimitiveId sum : cut->sums) {
        EXPECT_THAT(verify(alone(cut->stages, sum)), testing::IsEmpty());
        EXPECT_TRUE(takes(alone(cut->stages, sum)));
    }
    const double tolerance = c.precision == Precision::F32 ? 1e-4 : 1e-2;
    std::vector<Tensor> inputs = random_inputs(whole, 5);
    EXPECT_LE(largest_difference(interpret(whole, inputs), interpret(cut->stages, inputs)), tolerance);
    // NaN and infinities go the same ways.
    for (const double special : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                                 -std::numeric_limits<double>::infinity()}) {
        std::vector<Tensor> odd = inputs;
        odd[0] = Tensor(odd[0].dtype(), odd[0].shape());
        for (int64_t i = 0; i < odd[0].count(); ++i) odd[0].set(i, i % 37 == 5 ? special : inputs[0].get(i));
        const std::vector<Tensor> expected = interpret(whole, odd), found = interpret(cut->stages, odd);
        for (size_t k = 0; k < expected.size(); ++k)
            for (int64_t i = 0; i < expected[k].count(); ++i) {
                const double x = expected[k].get(i), y = found[k].get(i);
                if (std::isfinite(x)) continue;
                ASSERT_TRUE(std::isnan(x) ? std::isnan(y) : x == y) << special << ": " << x << " and " << y;
            }
    }
}

INSTANTIATE_TEST_SUITE_P(All, CutKernel, testing::ValuesIn(test::cut_cases()), [](const auto& test) {
    std::string name = test.param.name;
    for (char& c : name)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    return name;
});

TEST(CutKernels, AreNoneWhereALibraryHasAllOrNothing) {
    const auto cut = [](const std::string& text) { return cut_at_sums(parse_program(text), Precision::F32, takes); };
    EXPECT_FALSE(cut(product_then(" then max(add(acc, @2), 0.0)", "f32[64]")));
    EXPECT_FALSE(cut(R"(program p {
  input a: f32[8, 16]
  s: f32[8] = [8] sum(i1 < 16) mul(@0, @0) then exp(acc) where @0 = a[i0, i1]
  output s
})")) << "a square reads nothing twice";
    EXPECT_FALSE(cut(R"(program p {
  input a: f32[$m, 16]
  input b: f32[16, 8]
  s: f32[$m, 8] = [$m, 8] sum(i2 < 16) mul(@0, @1) then exp(acc) where @0 = a[i0, i2], @1 = b[i2, i1]
  output s
})")) << "dynamic sizes";
    EXPECT_FALSE(cut(R"(program p {
  input a: i32[8, 16]
  input b: i32[16, 8]
  s: i32[8, 8] = [8, 8] sum(i2 < 16) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  output s
})")) << "a product of integers";
}

/// Every window of 3 x 3 as a row would be nine copies of an image.
TEST(CutKernels, CopyNoOverlappingWindows) {
    const auto products = [](const Program& stages) {
        const auto found = library_operations(stages);
        const auto* forms = std::get_if<std::vector<LibraryOperation>>(&found);
        return forms != nullptr && !forms->front().convolution && takes(stages);
    };
    EXPECT_FALSE(cut_at_sums(parse_program(R"(program p {
  input x: f32[1, 8, 20, 20]
  input w: f32[16, 8, 3, 3]
  y: f32[1, 16, 18, 18] = [16, 18, 18] -> [0, i0, i1, i2] sum(i3 < 8, i4 < 3, i5 < 3) mul(@0, @1) where @0 = x[0, i3, i1 + i4, i2 + i5], @1 = w[i0, i3, i4, i5]
  output y
})"),
                             Precision::F32, products));
}

}  // namespace
}  // namespace tilewright
