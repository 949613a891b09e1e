// Small graphs: a stack of layers, a product, a chain of products, an attention, a convolution.

#include <cmath>

#include "base/error.h"
#include "driver/zoo/families.h"
#include "driver/zoo/layers.h"

namespace tilewright::nets {

namespace {

void mlp(GraphBuilder& b, const ZooSettings& s) {
    Value x = b.input("input", DType::F32, {batch_extent(s), s.at("in")});
    for (int64_t i = 0; i < s.at("layers"); ++i) {
        x = relu(b, gemm(b, "fc" + std::to_string(i + 1), x, s.at("hidden")));
    }
    b.output(gemm(b, "head", x, s.at("out")), "logits");
}

void matmul_model(GraphBuilder& b, const ZooSettings& s) {
    const Extent batch = batch_extent(s);
    const Extent m = extent(s, "m", 128);
    const Value x = b.input("a", DType::F32, {batch, m, s.at("k")});
    const Value y = b.input("b", DType::F32, {batch, s.at("k"), s.at("n")});
    b.output(matmul(b, x, y), "c");
}

/// c = (a b) d, with [m, k] [k, n] [n, h]: the result of the first product is only read by the second.
void gemm_chain(GraphBuilder& b, const ZooSettings& s) {
    const Extent batch = batch_extent(s);
    const Value x = b.input("a", DType::F32, {batch, extent(s, "m", 512), s.at("k")});
    const Value y = b.input("b", DType::F32, {batch, s.at("k"), s.at("n")});
    const Value z = b.input("d", DType::F32, {batch, s.at("n"), s.at("h")});
    b.output(matmul(b, matmul(b, x, y), z), "c");
}

void attention(GraphBuilder& b, const ZooSettings& s) {
    const Extent heads = extent(s, "heads", 8);
    const Extent m = extent(s, "m", 512);
    const Extent n = extent(s, "n", 512);
    const int64_t k = s.at("k");
    const Value q = b.input("q", DType::F32, {heads, m, k});
    const Value keys = b.input("k", DType::F32, {heads, n, k});
    const Value v = b.input("v", DType::F32, {heads, n, s.at("h")});
    const Value scale = b.scalar(static_cast<float>(1.0 / std::sqrt(static_cast<double>(k))));
    const Value scores = mul(b, matmul(b, q, transpose(b, keys, {0, 2, 1})), scale);
    b.output(matmul(b, softmax(b, scores, -1), v), "out");
}

void conv2d(GraphBuilder& b, const ZooSettings& s) {
    const Value x = image_input(b, s, s.at("in"));
    ConvSpec spec;
    spec.out = s.at("out");
    spec.kernel = {s.at("kernel")};
    spec.stride = {s.at("stride")};
    spec.pad = {s.at("pad")};
    spec.dilation = {s.at("dilation")};
    spec.groups = s.at("groups");
    if (spec.out % spec.groups != 0 || s.at("in") % spec.groups != 0) {
        model_error("zoo model 'conv2d': groups = {} divides neither in = {} nor out = {} evenly", spec.groups,
                    s.at("in"), spec.out);
    }
    b.output(relu(b, conv(b, "conv", x, spec)), "out");
}

}  // namespace

void add_micro_models(std::vector<Recipe>& recipes) {
    constexpr int64_t kMost = 65536;
    recipes.push_back(
        {"mlp",
         "multi-layer perceptron with ReLU: 784 - 512 - 512 - 10",
         {batch_option(), number_option("in", 784, kMost, "input features"),
          number_option("hidden", 512, kMost, "features of a hidden layer"),
          number_option("layers", 2, 256, "hidden layers"), number_option("out", 10, kMost, "output features")},
         mlp});
    recipes.push_back({"matmul",
                       "one batched matrix product [m,k] x [k,n] of two inputs",
                       {batch_option(),
                        {"m", 512, 0, kMost, "rows of the left operand; 0 = symbolic"},
                        number_option("n", 512, kMost, "columns of the right operand"),
                        number_option("k", 512, kMost, "summed extent")},
                       matmul_model});
    recipes.push_back({"gemm_chain",
                       "two matrix products in a row, [m,k] x [k,n] x [n,h] (MCFuser's G1 to G12)",
                       {batch_option(),
                        {"m", 512, 0, kMost, "rows; 0 = symbolic"},
                        number_option("n", 256, kMost, "columns of the intermediate"),
                        number_option("k", 64, kMost, "summed extent of the first product"),
                        number_option("h", 64, kMost, "columns of the result")},
                       gemm_chain});
    recipes.push_back({"attention",
                       "softmax(q k^T / sqrt(k)) v (MCFuser's S1 to S9)",
                       {{"heads", 8, 0, kMost, "batch times heads; 0 = symbolic"},
                        {"m", 512, 0, kMost, "queries; 0 = symbolic"},
                        {"n", 512, 0, kMost, "keys; 0 = symbolic"},
                        number_option("k", 64, kMost, "width of queries and keys"),
                        number_option("h", 64, kMost, "width of values")},
                       attention});
    recipes.push_back({"conv2d",
                       "one convolution with bias and ReLU",
                       {batch_option(),
                        size_option(56, 1, kMost),
                        number_option("in", 64, kMost, "input channels"),
                        number_option("out", 64, kMost, "output channels"),
                        number_option("kernel", 3, 255, "height and width of the filter"),
                        number_option("stride", 1, 255, "step of the filter"),
                        {"pad", 1, 0, 255, "zeros on every side"},
                        number_option("dilation", 1, 255, "step between the filter's taps"),
                        number_option("groups", 1, kMost, "groups of channels; `in` = depthwise")},
                       conv2d});
}

}  // namespace tilewright::nets
