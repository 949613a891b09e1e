#include "driver/quantize/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/rule_test.h"

namespace tilewright::quantize {
namespace {

using test::node;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

Tensor weights(Shape shape) { return {DType::F32, std::move(shape)}; }
const std::map<std::string, Attribute> kPadded = {{"pads", std::vector<int64_t>{1, 1, 1, 1}}};

/// x -> Conv -> Relu -> MaxPool -> p; p -> Conv -> Add(p) -> Relu -> Conv -> y
Graph residual() {
    return test::graph({{"x", DType::F32, {1, 3, 8, 8}}},
                       {node("Conv", {"x", "w1"}, {"a"}, kPadded), node("Relu", {"a"}, {"b"}),
                        node("MaxPool", {"b"}, {"p"}, {{"kernel_shape", std::vector<int64_t>{2, 2}}}),
                        node("Conv", {"p", "w2"}, {"c"}, kPadded), node("Add", {"c", "p"}, {"d"}),
                        node("Relu", {"d"}, {"e"}), node("Conv", {"e", "w2"}, {"y"}, kPadded)},
                       {"y"}, {{"w1", weights({4, 3, 3, 3})}, {"w2", weights({4, 4, 3, 3})}});
}

std::vector<std::string> nodes_of(const Layers& layers, const Graph& graph) {
    std::vector<std::string> names;
    for (const Layer& layer : layers.layers) names.push_back(graph.nodes[layer.node].name);
    return names;
}

TEST(Layers, AreProductsAndWhatLiesBetweenThem) {
    const Graph g = residual();
    const Layers layers = choose_layers(g, {}, true);
    EXPECT_THAT(nodes_of(layers, g), ElementsAre("Conv0", "MaxPool2", "Conv3", "Add4", "Conv6"));
    EXPECT_THAT(layers.tensors(g), ElementsAre("x", "b", "p", "c", "e"));
    EXPECT_EQ(layers.same_range.at("p"), "b");
    EXPECT_THAT(layers.left_out, IsEmpty());
}

TEST(Layers, LeaveOutExcludedNodes) {
    const Graph g = residual();
    const Layers layers = choose_layers(g, {"Conv6"}, true);
    EXPECT_THAT(nodes_of(layers, g), ElementsAre("Conv0", "MaxPool2", "Conv3"));
    EXPECT_THAT(layers.left_out, ElementsAre(HasSubstr("'Conv6' (Conv, opset 17): excluded")));
    try {
        choose_layers(g, {"conv6"}, true);
        FAIL() << "a node that the model lacks was accepted";
    } catch (const ModelError& e) {
        EXPECT_THAT(e.what(), HasSubstr("no node 'conv6'"));
        EXPECT_THAT(e.hint(), HasSubstr("'Conv6'"));
    }
}

TEST(Layers, NeedConstantWeights) {
    const Graph g = test::graph({{"x", DType::F32, {2, 4}}, {"v", DType::F32, {4, 4}}},
                                {node("MatMul", {"x", "v"}, {"a"}), node("MatMul", {"a", "w"}, {"y"})}, {"y"},
                                {{"w", weights({4, 3})}});
    const Layers layers = choose_layers(g, {}, true);
    EXPECT_THAT(nodes_of(layers, g), ElementsAre("MatMul1"));
    EXPECT_THAT(layers.left_out, ElementsAre(HasSubstr("no constant weights")));
}

TEST(Layers, HaveScalesAlongOutputChannels) {
    const Graph g = test::graph(
        {{"x", DType::F32, {2, 4}}},
        {node("Gemm", {"x", "w", "b"}, {"a"}), node("Gemm", {"a", "t", "b"}, {"c"}, {{"transB", int64_t{1}}}),
         node("Gemm", {"c", "t", "b"}, {"d"}, {{"transB", int64_t{1}}, {"beta", 0.5F}}),
         node("MatMul", {"d", "t"}, {"y"})},
        {"y"}, {{"w", weights({4, 4})}, {"t", weights({4, 4})}, {"b", weights({4})}});
    const Layers layers = choose_layers(g, {}, true);
    ASSERT_THAT(layers.layers, SizeIs(4));
    const auto axis = [&](size_t k) { return layers.layers[k].weights->axis; };
    EXPECT_EQ(axis(0), 1);
    EXPECT_EQ(axis(1), 0);
    EXPECT_EQ(axis(3), 1);
    EXPECT_TRUE(layers.layers[0].weights->bias);
    EXPECT_FALSE(layers.layers[2].weights->bias) << "its bias is scaled";
    EXPECT_FALSE(choose_layers(g, {}, false).layers[0].weights->axis);
}

/// The addition of a bias is an epilogue, and a sum that a normalisation reads stays in f32.
TEST(Layers, LeaveAdditionsAloneThatNoProductFollows) {
    const Graph g = test::graph(
        {{"x", DType::F32, {2, 4}}},
        {node("MatMul", {"x", "w"}, {"a"}), node("Add", {"a", "b"}, {"c"}), node("MatMul", {"c", "w"}, {"d"}),
         node("Add", {"d", "x"}, {"e"}), node("Softmax", {"e"}, {"f"}), node("MatMul", {"f", "w"}, {"y"})},
        {"y"}, {{"w", weights({4, 4})}, {"b", weights({4})}});
    EXPECT_THAT(nodes_of(choose_layers(g, {}, true), g), ElementsAre("MatMul0", "MatMul2", "MatMul5"));
}

TEST(Layers, NeedOperandsOfFloat32) {
    const Graph g = residual();
    std::map<std::string, DType> types;
    for (const std::string& name : choose_layers(g, {}, true).tensors(g)) types[name] = DType::F32;
    types["e"] = DType::F16;
    const Layers layers = with_types(choose_layers(g, {}, true), g, types);
    EXPECT_THAT(nodes_of(layers, g), Not(Contains("Conv6")));
    EXPECT_THAT(layers.left_out, ElementsAre(HasSubstr("'Conv6'")));
}

}  // namespace
}  // namespace tilewright::quantize
