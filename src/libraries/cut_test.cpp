// Kernels that are cut at their sums compute what the whole kernel does.

#include "libraries/cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "libraries/cut_programs_test.h"
#include "libraries/kernel_library.h"
#include "program/random_program.h"
#include "program/transform/substitute.h"

namespace tilewright {
namespace {

using test::CutCase;
using test::product_then;
using testing::HasSubstr;

/// A library of products and convolutions of operands of one type, with a bias and relu, and of nothing else.
std::optional<Refusal> refusal(const Program& stages) {
    const auto found = library_operations(at_sizes(stages, {}).value());
    if (const auto* none = std::get_if<Refusal>(&found)) return *none;
    const auto has = [](const LibraryOperation& op) {
        const size_t dims = op.result.dims.size();
        const bool relu = op.activation == Activation::None || op.activation == Activation::Relu;
        if (op.data.type != op.weights.type || !relu || op.scale != 1) return false;
        if (!op.convolution && (dims > 3 || (dims == 3 && op.data.dims[0] != op.weights.dims[0]))) return false;
        return op.added.empty() || (op.added.size() == 1 && op.is_bias(0));
    };
    const auto& forms = std::get<std::vector<LibraryOperation>>(found);
    if (std::any_of(forms.begin(), forms.end(), has)) return std::nullopt;
    return Refusal{"it has no such product"};
}

class CutKernel : public testing::TestWithParam<CutCase> {};

TEST_P(CutKernel, ComputesTheSame) {
    const CutCase& c = GetParam();
    const Program whole = parse_program(c.text);
    const auto found = cut_at_sums(whole, c.precision, refusal);
    const auto* cut = std::get_if<KernelCut>(&found);
    ASSERT_TRUE(cut) << std::get<Refusal>(found).reason << "\n" << c.text;
    EXPECT_THAT(cut->refused, testing::IsEmpty());
    const std::string text = print(cut->stages);
    SCOPED_TRACE(text);
    EXPECT_THAT(verify(cut->stages), testing::IsEmpty());
    EXPECT_THAT(text, HasSubstr(c.sum));
    EXPECT_EQ(cut->stages.primitives.size(), c.primitives);
    for (const PrimitiveId sum : cut->sums) {
        EXPECT_THAT(verify(alone(cut->stages, sum)), testing::IsEmpty());
        EXPECT_FALSE(refusal(alone(cut->stages, sum)));
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
        const std::vector<Tensor> expected = interpret(whole, odd), given = interpret(cut->stages, odd);
        for (size_t k = 0; k < expected.size(); ++k)
            for (int64_t i = 0; i < expected[k].count(); ++i) {
                const double x = expected[k].get(i), y = given[k].get(i);
                const bool same = std::isnan(x) ? std::isnan(y) : std::isinf(x) ? x == y : std::isfinite(y);
                ASSERT_TRUE(same) << special << ": " << x << " and " << y;
            }
    }
}

INSTANTIATE_TEST_SUITE_P(All, CutKernel, testing::ValuesIn(test::cut_cases()), [](const auto& test) {
    std::string name = test.param.name;
    for (char& c : name)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    return name;
});

std::string reason_against(const std::string& text, const LibraryRefusal& library = refusal) {
    const auto found = cut_at_sums(parse_program(text), Precision::F32, library);
    const auto* refused = std::get_if<Refusal>(&found);
    return refused == nullptr ? "nothing" : refused->reason;
}

TEST(CutKernels, AreNoneWhereALibraryHasAllOrNothing) {
    EXPECT_EQ(reason_against(product_then(" then max(add(acc, @2), 0.0)", "f32[64]")),
              "a library has the kernel as a whole");
    EXPECT_EQ(reason_against(R"(program p {
  input a: f32[8, 16]
  s: f32[8] = [8] sum(i1 < 16) mul(@0, @0) then exp(acc) where @0 = a[i0, i1]
  output s
})"),
              "a sum that uses no element twice");
    EXPECT_EQ(reason_against(R"(program p {
  input a: f32[8, 16]
  s: f32[8] = [8] max(i1 < 16) @0 where @0 = a[i0, i1]
  output s
})"),
              "no sum of products");
    EXPECT_EQ(reason_against(R"(program p {
  input a: i32[8, 16]
  input b: i32[16, 8]
  s: i32[8, 8] = [8, 8] sum(i2 < 16) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  output s
})"),
              "products that are not f32");
}

/// Every window of 3 x 3 as a row would be nine copies of an image.
TEST(CutKernels, CopyNoOverlappingWindows) {
    const auto products = [](const Program& stages) -> std::optional<Refusal> {
        const auto found = library_operations(stages);
        const auto* forms = std::get_if<std::vector<LibraryOperation>>(&found);
        if (forms != nullptr && forms->front().convolution) return Refusal{"a convolution"};
        return refusal(stages);
    };
    EXPECT_EQ(reason_against(R"(program p {
  input x: f32[1, 8, 20, 20]
  input w: f32[16, 8, 3, 3]
  y: f32[1, 16, 18, 18] = [16, 18, 18] -> [0, i0, i1, i2] sum(i3 < 8, i4 < 3, i5 < 3) mul(@0, @1) where @0 = x[0, i3, i1 + i4, i2 + i5], @1 = w[i0, i3, i4, i5]
  output y
})",
                             products),
              "a convolution");
}

/// What is refused of a kernel stays with its generated parts.
TEST(CutKernels, HaveTheSumsThatALibraryTakes) {
    const auto found = cut_at_sums(parse_program(R"(program p {
  input a: f32[20, 32]
  input b: f32[32, 24]
  input c: i32[24, 16]
  s: f32[20, 24] = [20, 24] sum(i2 < 32) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  y: f32[20, 16] = [20, 16] sum(i2 < 24) mul(@0, f32(@1)) where @0 = s[i0, i2], @1 = c[i2, i1]
  z: f32[20] = [20] sum(i1 < 16) mul(@0, @0) where @0 = y[i0, i1]
  output z
})"),
                                   Precision::F32, refusal);
    const auto* cut = std::get_if<KernelCut>(&found);
    ASSERT_TRUE(cut);
    EXPECT_THAT(cut->sums, testing::SizeIs(2)) << "integers are widened in front";
    ASSERT_THAT(cut->refused, testing::SizeIs(1));
    EXPECT_EQ(cut->refused[0].reason, "a sum that uses no element twice");
}

}  // namespace
}  // namespace tilewright
