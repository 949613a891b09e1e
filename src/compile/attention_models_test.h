#pragma once
// Attentions as exporters write them, as small models.

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "ops/rule_test.h"

namespace tilewright::test {

/// Sizes of an attention. `shared`: query heads for each head of the keys.
struct Sizes {
    int64_t batch = 2, heads = 4, rows = 256, keys = 256, width = 64, shared = 1;
    int64_t kv_heads() const { return heads / shared; }
};

enum class Form : uint8_t {
    Decomposed,  ///< MatMul, Softmax, MatMul
    Operator,    ///< Attention of opset 23, [batch, heads, rows, width]
    Packed,      ///< the same of [batch, rows, heads * width], with the numbers of heads as attributes
};

enum class Mask : uint8_t {
    None,
    Padding,   ///< (1 - mask) * -largest is added, as BERT's exporters write it; Attention: a float mask of the model
    Added,     ///< relative positions, as Swin's; Attention: likewise
    Selected,  ///< booleans select between scores and -infinity, as torch's masked_fill
    Constant,  ///< a constant triangle of 0 and -infinity is added, as torch's generate_square_subsequent_mask
    Causal,    ///< a constant triangle of booleans, as GPT-2's; Attention: is_causal
};

/// A way to write attention.
struct Written {
    const char* name;
    Form form = Form::Decomposed;
    Mask mask = Mask::None;
    bool projected = false;  ///< queries, keys and values are products with weights
    Sizes sizes = {};
    double softcap = 0;  ///< of the operator
};

inline Tensor filled(DType type, const Shape& shape, const std::function<double(int64_t)>& of) {
    Tensor t(type, shape);
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, of(i));
    return t;
}

/// Nodes of a model, as an exporter writes them.
class Exporter {
  public:
    Exporter(const Written& how, DType type) : how_(how), type_(type) {}

    Model run() {
        const Sizes& s = how_.sizes;
        const std::string q = operand("q", s.heads, s.rows), k = operand("k", s.kv_heads(), s.keys),
                          v = operand("v", s.kv_heads(), s.keys);
        how_.form == Form::Decomposed ? decomposed(q, k, v) : by_operator(q, k, v);
        const int64_t opset = how_.form == Form::Decomposed ? 17 : 23;
        return model(graph(inputs_, std::move(nodes_), {"y"}, std::move(constants_), opset), opset);
    }

  private:
    void add(const std::string& op, std::vector<std::string> inputs, const std::string& output,
             std::map<std::string, Attribute> attributes = {}) {
        nodes_.push_back(node(op, std::move(inputs), {output}, std::move(attributes)));
    }
    std::string constant(const std::string& name, Tensor t) {
        constants_.emplace(name, std::move(t));
        return name;
    }

    /// [batch, heads, rows, width]: an input, or a projection of one that is cut into heads.
    std::string operand(const std::string& name, int64_t heads, int64_t rows) {
        const Sizes& s = how_.sizes;
        if (!how_.projected && how_.form == Form::Packed) {
            inputs_.push_back({name, type_, {s.batch, rows, heads * s.width}});
            return name;
        }
        if (!how_.projected) {
            inputs_.push_back({name, type_, {s.batch, heads, rows, s.width}});
            return name;
        }
        const int64_t features = s.heads * s.width;
        if (inputs_.empty()) inputs_.push_back({"x", type_, {s.batch, s.rows, features}});
        const int64_t salt = static_cast<unsigned char>(name[0]);  // other weights for each
        const auto small = [salt](int64_t i) { return static_cast<double>(i * salt % 101 - 50) / 500; };
        const std::string w = constant("w_" + name, filled(type_, {features, heads * s.width}, small)),
                          b = constant("b_" + name, filled(type_, {heads * s.width}, small)),
                          shape = constant(
                              "s_" + name,
                              Tensor::of(DType::I64, {4}, std::vector<int64_t>{s.batch, rows, heads, s.width}));
        add("MatMul", {"x", w}, name + "_product");
        add("Add", {name + "_product", b}, name + "_sum");
        if (how_.form == Form::Packed) return name + "_sum";
        add("Reshape", {name + "_sum", shape}, name + "_heads");
        add("Transpose", {name + "_heads"}, name, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
        return name;
    }

    void decomposed(const std::string& q, std::string k, std::string v) {
        const Sizes& s = how_.sizes;
        if (s.shared > 1) {  // repeat_kv, as torch writes it
            for (std::string* x : {&k, &v}) {
                const std::string name = *x;
                const std::string apart = constant("a_" + name, Tensor::of(DType::I64, {5},
                                                                           std::vector<int64_t>{s.batch, s.kv_heads(),
                                                                                                1, s.keys, s.width})),
                                  wide = constant("e_" + name,
                                                  Tensor::of(DType::I64, {5},
                                                             std::vector<int64_t>{s.batch, s.kv_heads(), s.shared,
                                                                                  s.keys, s.width})),
                                  together = constant(
                                      "t_" + name, Tensor::of(DType::I64, {4},
                                                              std::vector<int64_t>{s.batch, s.heads, s.keys, s.width}));
                add("Reshape", {name, apart}, name + "_apart");
                add("Expand", {name + "_apart", wide}, name + "_wide");
                add("Reshape", {name + "_wide", together}, name + "_repeated");
                *x = name + "_repeated";
            }
        }
        add("Transpose", {k}, "k_transposed", {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
        add("MatMul", {q, "k_transposed"}, "scores");
        const double scale = 1 / std::sqrt(static_cast<double>(s.width));
        add("Mul", {"scores", constant("scale", filled(type_, {}, [&](int64_t) { return scale; }))}, "scaled");
        add("Softmax", {masked("scaled")}, "weights", {{"axis", int64_t{-1}}});
        add("MatMul", {"weights", v}, "y");
    }

    std::string masked(const std::string& scores) {
        const Sizes& s = how_.sizes;
        switch (how_.mask) {
            case Mask::None:
                return scores;
            case Mask::Padding: {
                inputs_.push_back({"mask", DType::I64, {s.batch, s.keys}});
                add("Unsqueeze", {"mask", constant("axes", Tensor::of(DType::I64, {2}, std::vector<int64_t>{1, 2}))},
                    "mask_4d");
                add("Cast", {"mask_4d"}, "mask_number",
                    {{"to", int64_t{type_ == DType::F32   ? 1
                                    : type_ == DType::F16 ? 10
                                                          : 16}}});
                add("Sub", {constant("one", filled(type_, {}, [](int64_t) { return 1; })), "mask_number"}, "missing");
                const double least = type_ == DType::F16 ? -65504 : -3e38;
                add("Mul", {"missing", constant("least", filled(type_, {}, [&](int64_t) { return least; }))}, "bias");
                add("Add", {scores, "bias"}, "masked");
                return "masked";
            }
            case Mask::Added:
                add("Add",
                    {scores, constant("bias", filled(type_, {1, s.heads, s.rows, s.keys},
                                                     [](int64_t i) { return static_cast<double>(i % 7) / 8; }))},
                    "masked");
                return "masked";
            case Mask::Selected:
                inputs_.push_back({"mask", DType::Bool, {s.batch, 1, s.rows, s.keys}});
                add("Where", {"mask", scores, constant("least", filled(type_, {}, [](int64_t) { return -kInfinity; }))},
                    "masked");
                return "masked";
            case Mask::Constant:
                add("Add",
                    {scores, constant("triangle",
                                      filled(type_, {s.rows, s.keys},
                                             [&](int64_t i) { return i % s.keys <= i / s.keys ? 0 : -kInfinity; }))},
                    "masked");
                return "masked";
            case Mask::Causal:
                add("Where",
                    {constant("triangle", filled(DType::Bool, {1, 1, s.rows, s.keys},
                                                 [&](int64_t i) { return i % s.keys <= i / s.keys ? 1 : 0; })),
                     scores, constant("least", filled(type_, {}, [](int64_t) { return -10000; }))},
                    "masked");
                return "masked";
        }
        return scores;
    }

    void by_operator(const std::string& q, const std::string& k, const std::string& v) {
        const Sizes& s = how_.sizes;
        std::vector<std::string> operands = {q, k, v};
        std::map<std::string, Attribute> attributes;
        switch (how_.mask) {
            case Mask::None:
                break;
            case Mask::Padding:
            case Mask::Added:
                inputs_.push_back({"mask", type_, {s.batch, 1, s.rows, s.keys}});
                operands.emplace_back("mask");
                break;
            case Mask::Selected:
                inputs_.push_back({"mask", DType::Bool, {s.rows, s.keys}});
                operands.emplace_back("mask");
                break;
            case Mask::Constant:
            case Mask::Causal:
                attributes.emplace("is_causal", int64_t{1});
                break;
        }
        if (how_.softcap != 0) attributes.emplace("softcap", static_cast<float>(how_.softcap));
        if (how_.form == Form::Packed) {
            attributes.emplace("q_num_heads", s.heads);
            attributes.emplace("kv_num_heads", s.kv_heads());
        }
        add("Attention", operands, "y", std::move(attributes));
    }

    static constexpr double kInfinity = std::numeric_limits<double>::infinity();

    const Written& how_;
    const DType type_;
    std::vector<In> inputs_;
    std::vector<Node> nodes_;
    std::map<std::string, Tensor> constants_;
};

}  // namespace tilewright::test
