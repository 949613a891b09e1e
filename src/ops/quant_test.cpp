#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/rule_test.h"

namespace tilewright::test {
namespace {

using ::testing::ElementsAre;

Tensor u8(Shape shape, const std::vector<int64_t>& v) { return tensor(DType::U8, std::move(shape), v); }
Tensor i8(Shape shape, const std::vector<int64_t>& v) { return tensor(DType::I8, std::move(shape), v); }

TEST(QuantizeLinear, RoundsHalvesToEvenAndSaturates) {
    const auto y = run("QuantizeLinear", {floats({6}, {1, 3, 5, -1000, 1000, 0}), floats({}, {2}), u8({}, {128})});
    EXPECT_EQ(y[0], u8({6}, {128, 130, 130, 0, 255, 128}));
}

TEST(QuantizeLinear, HasAScaleForEachIndexOrBlockAlongAnAxis) {
    const Tensor x = floats({2, 4}, {2, 4, 6, 8, 2, 4, 6, 8});
    EXPECT_EQ(run("QuantizeLinear", {x, floats({2}, {1, 2}), i8({2}, {0, -1})}, {{"axis", int64_t{0}}})[0],
              i8({2, 4}, {2, 4, 6, 8, 0, 1, 2, 3}));
    EXPECT_EQ(run("QuantizeLinear", {x, floats({2, 2}, {1, 2, 2, 1}), i8({2, 2}, {0, 0, 0, 0})},
                  {{"axis", int64_t{1}}, {"block_size", int64_t{2}}}, 21)[0],
              i8({2, 4}, {2, 4, 3, 4, 1, 2, 6, 8}));
}

TEST(QuantizeLinear, RejectsMismatchedScales) {
    EXPECT_THROW(run("QuantizeLinear", {floats({2, 4}, std::vector<float>(8)), floats({3}, {1, 1, 1})}), ModelError);
}

TEST(DequantizeLinear, SubtractsBeforeItMultiplies) {
    EXPECT_EQ(run("DequantizeLinear", {u8({3}, {0, 3, 255}), floats({}, {2}), u8({}, {128})})[0],
              floats({3}, {-256, -250, 254}));
}

TEST(DynamicQuantizeLinear, KeepsZeroInItsRange) {
    const auto y = run("DynamicQuantizeLinear", {floats({3}, {255, 510, 1})}, {}, 17, {}, 3);
    EXPECT_EQ(y[0], u8({3}, {128, 255, 0}));
    EXPECT_EQ(y[1].get(0), 2);
    EXPECT_EQ(y[2].get_int(0), 0);
    EXPECT_THAT(run("DynamicQuantizeLinear", {floats({2}, {0, 0})}, {}, 17, {}, 3)[0].to_ints(), ElementsAre(0, 0));
}

TEST(MatMulInteger, SubtractsZeroPointsOfRowsAndColumns) {
    const auto y =
        run("MatMulInteger", {u8({2, 2}, {1, 2, 3, 4}), i8({2, 2}, {1, -1, 2, 5}), u8({2}, {1, 3}), i8({2}, {1, -1})});
    // [[0, 1], [0, 1]] x [[0, 0], [1, 6]]
    EXPECT_EQ(y[0], tensor<int64_t>(DType::I32, {2, 2}, {1, 6, 1, 6}));
}

TEST(ConvInteger, PadsWithTheZeroPoint) {
    const auto y = run("ConvInteger", {u8({1, 1, 3}, {5, 6, 7}), u8({1, 1, 2}, {1, 1}), u8({}, {5})},
                       {{"pads", std::vector<int64_t>{1, 0}}});
    EXPECT_EQ(y[0], tensor<int64_t>(DType::I32, {1, 1, 3}, {0, 1, 3}));
}

TEST(QLinearConv, ScalesEachChannelAndAddsTheBias) {
    const auto y = run("QLinearConv", {u8({1, 1, 2}, {10, 20}), floats({}, {1}), u8({}, {0}), i8({2, 1, 1}, {1, 2}),
                                       floats({2}, {1, 0.5F}), i8({2}, {0, 0}), floats({}, {2}), u8({}, {3}),
                                       tensor<int64_t>(DType::I32, {2}, {2, -4})});
    // (10 + 2) / 2 + 3, (20 + 2) / 2 + 3; (20 - 4) / 4 + 3, (40 - 4) / 4 + 3
    EXPECT_EQ(y[0], u8({1, 2, 2}, {9, 14, 7, 12}));
}

}  // namespace
}  // namespace tilewright::test
