// Elementwise operators and activations: their primitives, older opsets, and edge cases.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/rule_test.h"
#include "program/scalar_ops.h"

namespace tilewright {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;
using namespace test;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string written(const std::string& op, const std::vector<In>& inputs,
                    std::map<std::string, Attribute> attributes = {}, int64_t opset = 17,
                    const std::map<std::string, Tensor>& known = {}) {
    std::vector<std::string> names;
    for (const In& i : inputs) names.push_back(i.name);
    for (const auto& [name, t] : known) names.push_back(name);
    return primitives(
        lower(model(graph(inputs, {node(op, names, {"y"}, std::move(attributes))}, {"y"}, known), opset)));
}

const In kX{"x", DType::F32, {3}};

TEST(Elementwise, FunctionsOfTheTableAreLoweredToThemselvesSinceTheirOpset) {
    for (const ScalarFunction& f : scalar_functions()) {
        if (f.onnx.empty()) continue;
        EXPECT_EQ(written(std::string(f.onnx), {kX}),
                  fmt::format("y = [3] {}(@0) where @0 = x[i0]\n", to_string(f.op)));
        EXPECT_EQ(find_lowering("", f.onnx, f.since)->since, f.since) << f.onnx;
        EXPECT_EQ(find_lowering("", f.onnx, f.since - 1), nullptr) << f.onnx;
    }
}

TEST(Elementwise, BecomesOnePrimitive) {
    EXPECT_EQ(written("Add", {{"a", DType::F32, {"n", 3}}, {"b", DType::F32, {3}}}),
              "y = [$n, 3] add(@0, @1) where @0 = a[i0, i1], @1 = b[i1]\n");
    EXPECT_EQ(written("Reciprocal", {kX}), "y = [3] div(1.0, @0) where @0 = x[i0]\n");
    EXPECT_EQ(written("Sum", {kX, {"b", DType::F32, {3}}, {"c", DType::F32, {}}}),
              "y = [3] add(add(@0, @1), @2) where @0 = x[i0], @1 = b[i0], @2 = c[]\n");
}

TEST(Elementwise, OfManyOperandsBecomesATree) {
    std::vector<In> inputs(70, kX);
    for (size_t k = 0; k < inputs.size(); ++k) inputs[k].name = "x" + std::to_string(k);
    const std::string text = written("Max", inputs);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
    std::vector<Tensor> numbered;
    for (int k = 0; k < 70; ++k) numbered.push_back(floats({2}, {static_cast<float>(k), static_cast<float>(-k)}));
    EXPECT_THAT(numbers(run("Sum", numbered)[0]), ElementsAre(2415, -2415));
    EXPECT_THAT(numbers(run("Mean", numbered)[0]), ElementsAre(34.5, -34.5));
    EXPECT_THAT(numbers(run("Max", numbered)[0]), ElementsAre(69, 0));
}

/// The result is rounded to f16 at the end, not between the levels of the tree: 2048 + 1 would stay 2048 there.
TEST(Elementwise, OfManyHalvesRoundsOnce) {
    std::vector<Tensor> ones(40, Tensor::of<float>(DType::F16, {1}, {1}));
    ones[0] = Tensor::of<float>(DType::F16, {1}, {2048});
    EXPECT_THAT(numbers(run("Sum", ones)[0]), ElementsAre(2088));
}

TEST(Elementwise, SmallPowersAreProducts) {
    const auto power = [](float e) {
        return written("Pow", {kX}, {}, 17, {{"z", Tensor::of<float>(DType::F32, {}, {e})}});
    };
    EXPECT_EQ(power(2), "y = [3] mul(@0, @0) where @0 = x[i0]\n");
    EXPECT_EQ(power(0.5f), "y = [3] pow(@0, 0.5) where @0 = x[i0]\n");
}

TEST(Elementwise, PowersKeepTheTypeOfTheBase) {
    const Tensor y = run("Pow", {tensor<int>(DType::I32, {3}, {2, 3, 4}), floats({3}, {0.5f, 2, 3})})[0];
    EXPECT_EQ(y.dtype(), DType::I32);
    EXPECT_THAT(numbers(y), ElementsAre(1, 9, 64));
    EXPECT_THAT(numbers(run("Pow", {floats({2}, {2, 3}), whole({2}, {3, -1})})[0]),
                Pointwise(DoubleNear(1e-6), std::vector<double>{8, 1.0 / 3}));
}

TEST(Elementwise, BeforeOpset7AnAxisPlacesTheSecondOperand) {
    EXPECT_EQ(written("Mul", {{"a", DType::F32, {2, 3, 4}}, {"b", DType::F32, {3}}},
                      {{"broadcast", int64_t{1}}, {"axis", int64_t{1}}}, 6),
              "Mul0/reshape = [3, 1] @0 where @0 = b[i0]\n"
              "y = [2, 3, 4] mul(@0, @1) where @0 = a[i0, i1, i2], @1 = Mul0/reshape[i1, 0]\n");
}

TEST(Elementwise, IntegerDivisionTruncatesAndRemaindersFollowTheirSign) {
    const Tensor a = whole({4}, {7, -7, 7, -7}), b = whole({4}, {3, 3, -3, -3});
    EXPECT_THAT(numbers(run("Div", {a, b})[0]), ElementsAre(2, -2, -2, 2));
    EXPECT_THAT(numbers(run("Mod", {a, b})[0]), ElementsAre(1, 2, -2, -1));
    EXPECT_THAT(numbers(run("Mod", {a, b}, {{"fmod", int64_t{1}}})[0]), ElementsAre(1, -1, 1, -1));
    EXPECT_THROW(run("Mod", {floats({1}, {1}), floats({1}, {1})}), ModelError);
}

TEST(Elementwise, ClipTakesItsBoundsFromAttributesThenInputs) {
    const Tensor x = floats({4}, {-2, 0.5f, 3, kNan});
    EXPECT_EQ(written("Clip", {kX}, {{"min", 0.0f}, {"max", 6.0f}}, 6),
              "y = [3] min(max(@0, 0.0), 6.0) where @0 = x[i0]\n");
    const std::vector<double> y = numbers(run("Clip", {x, floats({}, {-1}), floats({}, {1})})[0]);
    EXPECT_THAT(std::vector<double>(y.begin(), y.begin() + 3), ElementsAre(-1, 0.5, 1));
    EXPECT_TRUE(std::isnan(y[3]));
    EXPECT_THAT(numbers(run("Clip", {floats({1}, {0}), floats({}, {2}), floats({}, {1})})[0]), ElementsAre(1));
}

TEST(Elementwise, InfinitiesAreDistinguishedBySign) {
    const Tensor x = floats({3}, {kInf, -kInf, kNan});
    EXPECT_THAT(numbers(run("IsInf", {x})[0]), ElementsAre(1, 1, 0));
    EXPECT_THAT(numbers(run("IsInf", {x}, {{"detect_negative", int64_t{0}}})[0]), ElementsAre(1, 0, 0));
    EXPECT_THAT(numbers(run("IsInf", {x}, {{"detect_positive", int64_t{0}}})[0]), ElementsAre(0, 1, 0));
}

TEST(Elementwise, DropoutIsTheIdentity) {
    const std::vector<Tensor> y = run("Dropout", {floats({2}, {1, 2})}, {}, 13, {}, 2);
    EXPECT_THAT(numbers(y[0]), ElementsAre(1, 2));
    EXPECT_EQ(y[1].dtype(), DType::Bool);
    EXPECT_THAT(numbers(y[1]), ElementsAre(1, 1));
    EXPECT_EQ(run("Dropout", {floats({2}, {1, 2})}, {}, 7, {}, 2)[1].dtype(), DType::F32);
    const Tensor on = tensor<int>(DType::Bool, {}, {1});
    EXPECT_NO_THROW(run("Dropout", {floats({1}, {1}), floats({}, {0}), on}, {}, 13, {1, 2}));
    EXPECT_THROW(run("Dropout", {floats({1}, {1}), floats({}, {0.5f}), on}, {}, 13, {1, 2}), Unsupported);
}

TEST(Activation, IsFiniteWhereItsDefinitionIs) {
    const Tensor x = floats({5}, {-1000, -1, 0, 1, 1000});
    EXPECT_THAT(numbers(run("Sigmoid", {x})[0]),
                Pointwise(DoubleNear(1e-6), std::vector<double>{0, 0.26894142, 0.5, 0.73105858, 1}));
    EXPECT_THAT(numbers(run("Softplus", {x})[0]),
                Pointwise(DoubleNear(1e-4), std::vector<double>{0, 0.31326169, 0.69314718, 1.31326169, 1000}));
    EXPECT_THAT(numbers(run("Mish", {x}, {}, 18)[0]),
                Pointwise(DoubleNear(1e-4), std::vector<double>{0, -0.30340146, 0, 0.86509839, 1000}));
    EXPECT_THAT(numbers(run("Elu", {x})[0]),
                Pointwise(DoubleNear(1e-4), std::vector<double>{-1, -0.63212056, 0, 1, 1000}));
    EXPECT_THAT(numbers(run("Gelu", {x}, {}, 20)[0]),
                Pointwise(DoubleNear(1e-4), std::vector<double>{0, -0.15865525, 0, 0.84134475, 1000}));
}

TEST(Activation, UsesTheDefaultsOfItsAttributes) {
    EXPECT_EQ(written("LeakyRelu", {kX}), "y = [3] select(lt(@0, 0.0), mul(@0, 0.01f), @0) where @0 = x[i0]\n");
    EXPECT_EQ(written("HardSigmoid", {kX}, {{"alpha", 0.5f}, {"beta", 0.25f}}),
              "y = [3] max(min(add(mul(@0, 0.5), 0.25), 1.0), 0.0) where @0 = x[i0]\n");
}

TEST(Activation, PReluSlopesBelongToChannelsBeforeOpset7) {
    const Tensor x = floats({1, 2, 2}, {-1, -2, -3, -4}), slope = floats({2}, {10, 100});
    EXPECT_THAT(numbers(run("PRelu", {x, slope}, {}, 6)[0]), ElementsAre(-10, -20, -300, -400));
    EXPECT_THAT(numbers(run("PRelu", {x, slope}, {}, 16)[0]), ElementsAre(-10, -200, -30, -400));
}

TEST(Cast, RoundsTruncatesWrapsAndSaturates) {
    const auto cast = [](const Tensor& x, int64_t to) { return numbers(run("Cast", {x}, {{"to", to}}, 19)[0]); };
    EXPECT_THAT(cast(floats({3}, {-1.7f, 2.9f, kNan}), 7), ElementsAre(-1, 2, 0));
    EXPECT_THAT(cast(floats({3}, {0, -0.1f, kNan}), 9), ElementsAre(0, 1, 1));
    EXPECT_THAT(cast(whole({2}, {300, -1}), 2), ElementsAre(44, 255));
    EXPECT_THAT(cast(floats({2}, {1e6f, 0.1f}), 10), ElementsAre(kInf, 0.0999755859375));
    EXPECT_THAT(cast(floats({2}, {1e6f, -1e6f}), 17), ElementsAre(448, -448));
}

TEST(Cast, OldFilesGiveTheTypeByName) {
    EXPECT_EQ(run("Cast", {floats({1}, {3.5f})}, {{"to", std::string("INT32")}}, 1)[0].dtype(), DType::I32);
    EXPECT_THROW(run("Cast", {floats({1}, {3.5f})}, {{"to", int64_t{8}}}), Unsupported);
}

TEST(Cast, BitsAreKept) {
    EXPECT_THAT(numbers(run("BitCast", {floats({1}, {1})}, {{"to", int64_t{6}}}, 26)[0]), ElementsAre(0x3F800000));
    EXPECT_THAT(numbers(run("BitCast", {tensor<float>(DType::F16, {1}, {1})}, {{"to", int64_t{4}}}, 26)[0]),
                ElementsAre(0x3C00));
    EXPECT_THROW(run("BitCast", {floats({1}, {1})}, {{"to", int64_t{7}}}, 26), ModelError);
}

}  // namespace
}  // namespace tilewright
