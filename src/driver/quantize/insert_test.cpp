#include "driver/quantize/insert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "graph/export.h"
#include "graph/import.h"
#include "ops/rule_test.h"

namespace tilewright::quantize {
namespace {

using test::node;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

TEST(Scales, MapARangeToEightBits) {
    const ElementScale u8 = scale_of({-1, 4.1}, ActivationType::U8);
    EXPECT_FLOAT_EQ(u8.scale, 0.02F);
    EXPECT_EQ(u8.zero_point, 50);
    const ElementScale s8 = scale_of({-1, 2.54}, ActivationType::S8);
    EXPECT_FLOAT_EQ(s8.scale, 0.02F);
    EXPECT_EQ(s8.zero_point, 0);
    EXPECT_EQ(scale_of({0, 0}, ActivationType::U8).scale, 1);
    EXPECT_EQ(scale_of({0, 1e-44}, ActivationType::U8).scale, 1) << "a subnormal scale has few digits";
}

TEST(Weights, HaveAScaleForEachChannel) {
    const Tensor w = Tensor::of(DType::F32, {2, 3}, std::vector<float>{1.27F, -0.635F, 0.F, 0.F, 0.F, 0.F});
    const QuantisedWeights rows = quantise_weights(w, 0);
    EXPECT_THAT(rows.elements.as<int8_t>(), ElementsAre(127, -64, 0, 0, 0, 0));
    EXPECT_EQ(rows.scales.shape(), Shape{2});
    EXPECT_FLOAT_EQ(static_cast<float>(rows.scales.get(0)), 0.01F);
    EXPECT_EQ(rows.scales.get(1), 1) << "of a channel of zeros";
    EXPECT_EQ(quantise_weights(w, 1).scales.shape(), Shape{3});
    EXPECT_EQ(quantise_weights(w, std::nullopt).scales.shape(), Shape{});
    const Tensor odd = Tensor::of(DType::F32, {1, 2}, std::vector<float>{NAN, 1.F});
    EXPECT_THAT(quantise_weights(odd, 0).elements.as<int8_t>(), ElementsAre(0, 127));
}

/// y = Gemm(x, w, b); z = MatMul(y, w)
Model two_products() {
    return test::model(test::graph({{"x", DType::F32, {2, 4}}},
                                   {node("Gemm", {"x", "w", "b"}, {"y"}), node("MatMul", {"y", "w"}, {"z"})}, {"z"},
                                   {{"w", Tensor::of(DType::F32, {4, 4}, std::vector<float>(16, 0.5F))},
                                    {"b", Tensor::of(DType::F32, {4}, std::vector<float>{1, 2, 3, 4})}}));
}
const std::map<std::string, Range> kRanges = {{"x", {-1, 1.55}}, {"y", {0, 2.55}}};

std::vector<std::string> operators(const Model& m) {
    std::vector<std::string> ops;
    for (const Node& n : m.graph.nodes) ops.push_back(n.op);
    return ops;
}

TEST(Insertion, QuantisesOperandsOnceAndStoresWeightsInEightBits) {
    const Model m = two_products();
    const Model q = insert_quantisation(m, choose_layers(m.graph, {}, true), kRanges, {});
    EXPECT_THAT(operators(q), ElementsAre("QuantizeLinear", "DequantizeLinear", "DequantizeLinear", "DequantizeLinear",
                                          "Gemm", "QuantizeLinear", "DequantizeLinear", "MatMul"));
    EXPECT_THAT(q.graph.verify(), IsEmpty());
    EXPECT_EQ(q.graph.initializers.count("w"), 0u);
    EXPECT_EQ(q.graph.initializers.at("w_quantized").dtype(), DType::I8);
    EXPECT_EQ(q.graph.initializers.at("x_zero_point").get(0), 100);
    const Tensor& bias = q.graph.initializers.at("b_quantized");
    EXPECT_EQ(bias.dtype(), DType::I32);
    EXPECT_EQ(bias.get_int(3), std::llround(4 / (0.01 * 0.5 / 127)));
}

TEST(Insertion, WritesAFileThatIsReadAgain) {
    const Model m = two_products();
    const std::string bytes = model_to_bytes(insert_quantisation(m, choose_layers(m.graph, {}, true), kRanges, {}));
    const Model read = load_model_from_bytes(bytes.data(), bytes.size());
    EXPECT_EQ(read.graph.nodes.size(), 8u);
    EXPECT_EQ(read.graph.initializers.at("w_scale").shape(), Shape{4});
}

TEST(Insertion, KeepsWhatOthersRead) {
    Model m = two_products();
    m.graph.outputs.push_back({"w", {}});
    const Model q = insert_quantisation(m, choose_layers(m.graph, {"MatMul1"}, true), {{"x", {-1, 1}}}, {});
    EXPECT_EQ(q.graph.initializers.count("w"), 1u);
    EXPECT_THAT(operators(q), ElementsAre("QuantizeLinear", "DequantizeLinear", "DequantizeLinear", "DequantizeLinear",
                                          "Gemm", "MatMul"));
}

TEST(Insertion, MakesNewNames) {
    Model m = two_products();
    m.graph.nodes[0].outputs[0] = m.graph.nodes[1].inputs[0] = "x_quantized";
    const Model q =
        insert_quantisation(m, choose_layers(m.graph, {}, true), {{"x", {0, 1}}, {"x_quantized", {0, 1}}}, {});
    EXPECT_THAT(q.graph.verify(), IsEmpty());
}

TEST(Insertion, GivesEachLayerASwitch) {
    const Model m = two_products();
    const Model q = insert_quantisation(m, choose_layers(m.graph, {}, true), kRanges, {ActivationType::U8, true});
    ASSERT_EQ(q.graph.inputs.size(), 3u);
    EXPECT_EQ(q.graph.inputs[1].type.dtype, DType::Bool);
    EXPECT_THAT(operators(q), Contains("Where").Times(5));  // x, w, b; y, w
    EXPECT_THAT(q.graph.verify(), IsEmpty());
}

TEST(Insertion, LeavesABiasInF32ThatPassesInt32) {
    Model m = two_products();
    m.graph.initializers["b"] = Tensor::of(DType::F32, {4}, std::vector<float>{1e9F, 0, 0, 0});
    const Model q = insert_quantisation(m, choose_layers(m.graph, {}, true), {{"x", {0, 1e-3}}, {"y", {0, 1}}}, {});
    EXPECT_EQ(q.graph.initializers.at("b").dtype(), DType::F32);
    EXPECT_THAT(q.graph.initializers, Not(Contains(testing::Key("b_quantized"))));
}

}  // namespace
}  // namespace tilewright::quantize
