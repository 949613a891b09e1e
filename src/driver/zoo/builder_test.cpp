#include "driver/zoo/builder.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "driver/zoo/layers.h"
#include "onnx/onnx_pb.h"

namespace tilewright::nets {
namespace {

onnx::GraphProto graph_of(const GraphBuilder& b) {
    onnx::ModelProto model;
    EXPECT_TRUE(model.ParseFromString(b.serialize()));
    return model.graph();
}

/// "Shape Gather ...": the operators in order, without the Constant nodes of their inputs.
std::string operators(const onnx::GraphProto& graph) {
    std::string out;
    for (const auto& node : graph.node()) {
        if (node.op_type() == "Constant") continue;
        if (!out.empty()) out += ' ';
        out += node.op_type();
    }
    return out;
}

std::vector<float> weights_of(const onnx::GraphProto& graph, const std::string& name) {
    for (const auto& t : graph.initializer()) {
        if (t.name() != name) continue;
        std::vector<float> out(t.raw_data().size() / sizeof(float));
        std::copy_n(t.raw_data().data(), t.raw_data().size(), reinterpret_cast<char*>(out.data()));
        return out;
    }
    ADD_FAILURE() << "no initialiser " << name;
    return {};
}

TEST(GraphBuilder, NamesNodesAndWeightsAfterTheirScopes) {
    GraphBuilder b("net", {});
    const Value x = b.input("x", DType::F32, {1, 3, 8, 8});
    {
        const auto outer = b.scope("layer1.0");
        const Value y = conv(b, "conv1", x, {.out = 4, .kernel = {3}, .pad = {1}});
        b.output(relu(b, relu(b, y)), "y");
    }
    const onnx::GraphProto graph = graph_of(b);
    ASSERT_EQ(graph.node_size(), 3);
    EXPECT_EQ(graph.node(0).name(), "/layer1/0/conv1/Conv");
    EXPECT_EQ(graph.node(0).input(1), "layer1.0.conv1.weight");
    EXPECT_EQ(graph.node(1).name(), "/layer1/0/Relu");
    EXPECT_EQ(graph.node(2).name(), "/layer1/0/Relu_1");
    EXPECT_EQ(graph.node(2).output(0), "y");
}

TEST(GraphBuilder, RenamesAnOutputWhereItIsReadAsWell) {
    GraphBuilder b("net", {});
    const Value x = b.input("x", DType::F32, {2});
    const Value hidden = relu(b, x);
    const Value y = sigmoid(b, hidden);
    b.output(hidden, "hidden");
    b.output(y, "y");
    const onnx::GraphProto graph = graph_of(b);
    EXPECT_EQ(graph.node(0).output(0), "hidden");
    EXPECT_EQ(graph.node(1).input(0), "hidden");
}

TEST(GraphBuilder, RefusesTwoWeightsOfOneName) {
    GraphBuilder b("net", {});
    b.weight("w", {2}, Draw{});
    EXPECT_THROW(b.weight("w", {2}, Draw{}), InternalError);
}

TEST(GraphBuilder, RefusesModelsAboveTheFileLimit) {
    BuildOptions dry;
    dry.with_data = false;
    GraphBuilder b("net", dry);
    const int64_t gigabyte_of_floats = int64_t{1} << 28;
    b.weight("a", {gigabyte_of_floats}, Draw{});
    EXPECT_THROW(b.weight("b", {gigabyte_of_floats}, Draw{}), ModelError);
}

TEST(Reshape, StaticExtentsAreOneConstant) {
    GraphBuilder b("net", {});
    const Value x = b.input("x", DType::F32, {2, 6, 4});
    b.output(reshape(b, x, {2, 6, 2, 2}), "y");
    EXPECT_EQ(operators(graph_of(b)), "Reshape");
}

TEST(Reshape, SymbolicExtentsAreReadFromTheInput) {
    GraphBuilder b("net", {});
    const Value x = b.input("x", DType::F32, {Extent(1, "batch"), Extent(128, "seq"), 4});
    b.output(reshape(b, x, {x[0], x[1], 2, 2}), "y");
    const onnx::GraphProto graph = graph_of(b);
    EXPECT_EQ(operators(graph), "Shape Gather Unsqueeze Shape Gather Unsqueeze Concat Reshape");
    const auto& dims = graph.output(0).type().tensor_type().shape();
    EXPECT_EQ(dims.dim(0).dim_param(), "batch");
    EXPECT_EQ(dims.dim(1).dim_param(), "seq");
    EXPECT_EQ(dims.dim(2).dim_value(), 2);
}

TEST(Reshape, AProductOfSymbolsIsComputedAtRunTime) {
    GraphBuilder b("net", {});
    const Value x = b.input("x", DType::F32, {Extent(1, "batch"), Extent(128, "seq"), 4});
    const Value rows = reshape(b, x, {x[0] * x[1], 4});
    EXPECT_EQ(rows[0].symbol, "batch*seq");
    EXPECT_EQ(rows.size(0), 128);
    b.output(rows, "y");
    EXPECT_EQ(operators(graph_of(b)), "Concat Reshape");
}

TEST(Broadcasting, TakesTheLargerExtentAndKeepsSymbols) {
    GraphBuilder b("net", {});
    const Value x = b.input("x", DType::F32, {Extent(1, "batch"), 1, 5});
    const Value y = b.input("y", DType::F32, {7, 1});
    const Value z = add(b, x, y);
    ASSERT_EQ(z.rank(), 3);
    EXPECT_EQ(z[0].symbol, "batch");
    EXPECT_EQ(z.size(1), 7);
    EXPECT_EQ(z.size(2), 5);
    EXPECT_THROW(add(b, y, b.input("w", DType::F32, {3, 1})), InternalError);
}

TEST(Conv, ShapeAndMacsFollowTheWindow) {
    GraphBuilder b("net", {});
    const Value x = b.input("x", DType::F32, {2, 8, 10, 11});
    const Value y = conv(b, "c", x, {.out = 6, .kernel = {3, 5}, .stride = {2, 1}, .pad = {1, 0}, .groups = 2});
    EXPECT_EQ(y.size(0), 2);
    EXPECT_EQ(y.size(1), 6);
    EXPECT_EQ(y.size(2), 5);
    EXPECT_EQ(y.size(3), 7);
    EXPECT_EQ(b.summary().macs, 2 * 6 * 5 * 7 * (4 * 3 * 5));
    EXPECT_EQ(b.summary().parameters, 6 * 4 * 3 * 5 + 6);
}

TEST(Conv, AnImageSmallerThanTheWindowIsTheUsersError) {
    GraphBuilder b("net", {});
    const Value x = b.input("x", DType::F32, {1, 1, 2, 2});
    EXPECT_THROW(conv(b, "c", x, {.out = 1, .kernel = {3}}), ModelError);
}

TEST(ConvNorm, FoldedAndKeptAreTheSameFunction) {
    // kept: y = scale (w x - mean) / sqrt(var + eps) + shift; folded: y = w' x + b'.
    const ConvSpec spec = {.out = 5, .kernel = {3}, .pad = {1}};
    const auto built = [&](bool keep) {
        BuildOptions options;
        options.keep_batch_norm = keep;
        GraphBuilder b("net", options);
        const Value x = b.input("x", DType::F32, {1, 4, 6, 6});
        b.output(conv_norm(b, "c", x, spec), "y");
        EXPECT_EQ(b.summary().parameters, 5 * 4 * 9 + 2 * 5);
        return graph_of(b);
    };
    const onnx::GraphProto kept = built(true);
    const onnx::GraphProto folded = built(false);
    EXPECT_EQ(operators(kept), "Conv BatchNormalization");
    EXPECT_EQ(operators(folded), "Conv");
    const auto w = weights_of(kept, "c.weight");
    const auto scale = weights_of(kept, "c_bn.weight");
    const auto shift = weights_of(kept, "c_bn.bias");
    const auto mean = weights_of(kept, "c_bn.running_mean");
    const auto variance = weights_of(kept, "c_bn.running_var");
    const auto w2 = weights_of(folded, "c.weight");
    const auto b2 = weights_of(folded, "c.bias");
    for (size_t c = 0; c < 5; ++c) {
        const double s = scale[c] / std::sqrt(variance[c] + 1e-5);
        for (size_t i = c * 36; i < (c + 1) * 36; ++i) EXPECT_NEAR(w2[i], w[i] * s, 1e-7);
        EXPECT_NEAR(b2[c], shift[c] - mean[c] * s, 1e-7);
    }
}

TEST(ConvNorm, TheRunningMeanMatchesTheOutputOfAnUncentredFilter) {
    BuildOptions options;
    options.keep_batch_norm = true;
    GraphBuilder b("net", options);
    Value x = b.input("x", DType::F32, {1, 16, 6, 6});
    x.mean = 10;  // far above the noise of the statistics
    b.output(conv_norm(b, "dw", x, {.out = 16, .kernel = {3}, .pad = {1}, .groups = 16}), "y");
    const onnx::GraphProto graph = graph_of(b);
    const auto w = weights_of(graph, "dw.weight");
    const auto mean = weights_of(graph, "dw_bn.running_mean");
    for (size_t c = 0; c < 16; ++c) {
        double sum = 0;
        for (size_t i = 0; i < 9; ++i) sum += w[c * 9 + i];
        EXPECT_NEAR(mean[c], 10 * sum, 0.4);
    }
}

TEST(LayerNorm, IsOneNodeOrNineByOpset) {
    const auto built = [](int64_t opset) {
        BuildOptions options;
        options.opset = opset;
        GraphBuilder b("net", options);
        b.output(layer_norm(b, "ln", b.input("x", DType::F32, {2, 8}), 1e-5f), "y");
        return operators(graph_of(b));
    };
    EXPECT_EQ(built(17), "LayerNormalization");
    EXPECT_EQ(built(16), "ReduceMean Sub Pow ReduceMean Add Sqrt Div Mul Add");
}

TEST(Linear, StoresTheWeightsOfGemmTransposed) {
    GraphBuilder b("net", {});
    const Value x = b.input("x", DType::F32, {3, 20});
    // The same name in two graphs draws the same numbers.
    GraphBuilder b2("net", {});
    const Value x2 = b2.input("x", DType::F32, {3, 20});
    b.output(linear(b, "fc", x, 7), "y");
    b2.output(gemm(b2, "fc", x2, 7), "y");
    EXPECT_EQ(weights_of(graph_of(b), "fc.weight"), transposed(weights_of(graph_of(b2), "fc.weight"), 7, 20));
}

}  // namespace
}  // namespace tilewright::nets
