// The quantised operators of com.microsoft against ONNX Runtime's results (scripts/contrib_quant_cases.py).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/contrib_cases_test.h"

namespace tilewright {
namespace {

using test::floats;
using test::model_of;
using test::operator_cases;
using test::OperatorCase;
using test::refusal;
using testing::HasSubstr;

/// ONNX Runtime rounds ratios of scales, a polynomial's sigmoid and a table's exponentials, so results may differ by
/// one quantum. The others are floats of integer sums.
TEST(ContribQuant, MatchesOnnxRuntime) {
    std::vector<OperatorCase> all = operator_cases("contrib_quant_cases.txt");
    for (OperatorCase& c : operator_cases("contrib_quant_layer_cases.txt")) all.push_back(std::move(c));
    ASSERT_GE(all.size(), 120u);
    int64_t quanta = 0, elements = 0;
    for (const OperatorCase& c : all) {
        const Program p = lower(model_of(c));
        EXPECT_EQ(verify(p), std::vector<std::string>()) << c.op;
        const Tensor y = interpret(p, test::given(c)).front();
        ASSERT_EQ(y.dtype(), c.outputs.at(0).dtype()) << c.op;
        ASSERT_EQ(y.shape(), c.outputs.at(0).shape()) << c.op;
        for (int64_t i = 0; i < y.count(); ++i) {
            const double expected = c.outputs.at(0).get(i), found = y.get(i);
            if (is_float(y.dtype())) {
                EXPECT_NEAR(found, expected, 1e-5 * (1 + std::abs(expected))) << c.op << " at " << i;
                continue;
            }
            EXPECT_NEAR(found, expected, 1) << c.op << " at " << i;
            quanta += found != expected ? 1 : 0;
            ++elements;
        }
    }
    EXPECT_LE(quanta * 100, elements) << "more than one in a hundred is a neighbour";
}

/// Examples that end before others would have states of their own scales.
TEST(ContribQuant, RefusesDynamicLstmOfSeveralLengths) {
    const Tensor x(DType::F32, {3, 2, 4}), w(DType::I8, {1, 4, 8}), r(DType::I8, {1, 2, 8}), none,
        scale = floats({1}, {0.1F}), zero(DType::I8, {1});
    Tensor lengths(DType::I32, {2});
    for (int64_t i = 0; i < 2; ++i) lengths.set(i, int64_t{3});
    const OperatorCase c = {
        "DynamicQuantizeLSTM", {}, {x, w, r, none, lengths, none, none, none, scale, zero, scale, zero}, {}};
    EXPECT_THAT(refusal(c), HasSubstr("sequence_lens (input 4)"));
}

TEST(ContribQuant, RejectsMismatchesWithNodeAndInput) {
    const Tensor x(DType::U8, {2, 3}), scale = floats({}, {0.1F}), zero(DType::U8, {}), other(DType::I8, {});
    const Tensor real = floats({2, 3}, {1, 2, 3, 4, 5, 6});
    const std::vector<std::pair<OperatorCase, std::string>> wrong = {
        {{"QLinearAdd", {}, {x, scale, other, x, scale, zero, scale, zero}, {}}, "input 2 (a zero point) should be u8"},
        {{"QLinearAdd", {}, {x, real, zero, x, scale, zero, scale, zero}, {}}, "input 1 (a scale) must contain one"},
        {{"QLinearMul", {}, {real, scale, zero, real, scale, zero, scale, zero}, {}}, "input 0 should be u8 or i8"},
        {{"QLinearSoftmax", {}, {x, scale, zero, scale, zero}, {}}, "attribute 'opset'"},
        {{"QLinearConcat", {{"axis", int64_t{0}}}, {scale, zero, x, scale}, {}}, "there are 4 inputs"},
        {{"QLinearConcat", {}, {scale, zero, x, scale, zero}, {}}, "attribute 'axis' is missing"},
        {{"QLinearAveragePool", {}, {x, scale, zero, scale, zero}, {}}, "rank 3 or more"},
        {{"QLinearGlobalAveragePool", {}, {x, scale, zero, scale, zero}, {}}, "rank 3 or more"},
        {{"DynamicQuantizeMatMul", {}, {x, Tensor(DType::U8, {3, 2}), scale}, {}}, "input 0 should be f32"},
        {{"DynamicQuantizeMatMul", {}, {real, Tensor(DType::U8, {3, 2}), floats({3}, {1, 1, 1})}, {}},
         "one number or 2"},
        {{"MatMulIntegerToFloat", {}, {x, Tensor(DType::U8, {3, 2}), scale, scale, other}, {}},
         "input 4 (a zero point) should be u8"},
    };
    for (const auto& [c, message] : wrong) {
        EXPECT_THAT(refusal(c), HasSubstr(message)) << c.op;
        EXPECT_THAT(refusal(c), HasSubstr("(com.microsoft." + c.op)) << c.op;
    }
}

}  // namespace
}  // namespace tilewright
