// Attentions as models write them, on a GPU with warpgroup instructions: whatever the mask, the operator and the type,
// both products are in one kernel, on warpgroups, and the stages of that kernel are an attention to the libraries.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "compile/pipeline.h"
#include "libraries/attention.h"
#include "ops/rule_test.h"
#include "program/analysis/contraction.h"
#include "tile/walk.h"

namespace tilewright {
namespace {

using test::graph;
using test::In;
using test::model;
using test::node;

/// Sizes of an attention. `shared`: query heads for each head of the keys.
struct Sizes {
    int64_t batch = 2, heads = 4, rows = 256, keys = 256, width = 64, shared = 1;
    int64_t kv_heads() const { return heads / shared; }
};

enum class Mask : uint8_t { None, Padding, Added, Chosen, Causal };

/// A way to write attention.
struct Written {
    const char* name;
    bool decomposed = true;  ///< MatMul, Softmax, MatMul; else the operator of opset 23
    Mask mask = Mask::None;
    bool projected = false;  ///< queries, keys and values are products with weights
    Sizes sizes = {};
};

Tensor filled(DType type, const Shape& shape, const std::function<double(int64_t)>& of) {
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
        how_.decomposed ? decomposed(q, k, v) : by_operator(q, k, v);
        const int64_t opset = how_.decomposed ? 17 : 23;
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
            case Mask::Padding: {  // (1 - mask) * -largest, as BERT's exporters write it
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
            case Mask::Added:  // relative positions, as Swin's
                add("Add",
                    {scores, constant("bias", filled(type_, {1, s.heads, s.rows, s.keys},
                                                     [](int64_t i) { return static_cast<double>(i % 7) / 8; }))},
                    "masked");
                return "masked";
            case Mask::Chosen:
            case Mask::Causal:  // a triangle of booleans, as GPT-2's
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
            case Mask::Chosen:
                inputs_.push_back({"mask", DType::Bool, {s.rows, s.keys}});
                operands.emplace_back("mask");
                break;
            case Mask::Causal:
                attributes.emplace("is_causal", int64_t{1});
                break;
        }
        add("Attention", operands, "y", std::move(attributes));
    }

    const Written& how_;
    const DType type_;
    std::vector<In> inputs_;
    std::vector<Node> nodes_;
    std::map<std::string, Tensor> constants_;
};

/// How many attentions became what.
struct Count {
    int kernels = 0;     ///< with a product of two computed tensors or inputs
    int warpgroups = 0;  ///< of these, with both products on warpgroups
    int offered = 0;     ///< of these, that libraries have a form for
    std::string why;     ///< what is missing, for messages
};

bool is_attention_product(const Program& stages, const TensorExpr& e) {
    return contraction(e) && !weighted_contraction(stages, e) && e.accesses.size() >= 2;
}

Count count(const CompiledModel& compiled) {
    Count out;
    for (const Step& step : compiled.plan().steps) {
        const auto* call = std::get_if<KernelCall>(&step.what);
        if (call == nullptr) continue;
        const TileProgram& kernel = compiled.kernels()[call->kernel];
        Program stages = kernel.stages;
        bool weights = false;
        for (size_t i = 0; i < stages.inputs.size(); ++i)
            weights = weights || (compiled.plan().program.is_constant(call->tensors[i]) &&
                                  stages.values[stages.inputs[i]].shape.size() == 2);
        const Walk tree = walk(kernel);
        int products = 0, groups = 0;
        for (const auto& [path, compute] : tree.computes) {
            if (!is_attention_product(stages, *stages.primitives[compute->stage].expr())) continue;
            ++products;
            groups += compute->micro.matrix && compute->micro.matrix->group() ? 1 : 0;
        }
        if (products == 0 || (products == 1 && weights)) continue;
        ++out.kernels;
        if (products == 2 && groups == 2)
            ++out.warpgroups;
        else
            out.why += fmt::format("{} products, {} on warpgroups:\n{}", products, groups, print(kernel));
        const auto form = library_attention(stages);
        if (std::holds_alternative<LibraryAttention>(form))
            ++out.offered;
        else
            out.why += std::get<Refusal>(form).reason + "\n" + print(stages);
    }
    return out;
}

const Written kWritten[] = {
    {"no mask", true, Mask::None},
    {"padding", true, Mask::Padding},
    {"relative positions", true, Mask::Added},
    {"a triangle", true, Mask::Causal},
    {"projections, padding", true, Mask::Padding, true},
    {"projections, a triangle", true, Mask::Causal, true},
    {"197 tokens", true, Mask::None, true, {1, 12, 197, 197, 64}},
    {"77 tokens", true, Mask::Padding, true, {2, 8, 77, 77, 64}},
};

struct Typed {
    DType stored;
    Precision precision;
};
const Typed kTyped[] = {{DType::F32, Precision::F16},  {DType::F32, Precision::BF16}, {DType::F32, Precision::TF32},
                        {DType::F16, Precision::F32},  {DType::BF16, Precision::F32}, {DType::F16, Precision::F16},
                        {DType::BF16, Precision::BF16}};

TEST(GpuAttention, IsOneKernelOnWarpgroupsThatLibrariesHaveAFormFor) {
    for (const Written& w : kWritten)
        for (const Typed& t : kTyped) {
            if (w.mask == Mask::Added && t.precision == Precision::TF32) continue;  // two kernels are estimated faster
            SCOPED_TRACE(fmt::format("{}: {} by {}", w.name, to_string(t.stored), to_string(t.precision)));
            PipelineOptions o;
            o.compile.gpu = h200();
            o.compile.precision = t.precision;
            o.compile.code = false;
            o.rewrite.reset();  // (they double the time of this test)
            const Compilation c = compile_model(Exporter(w, t.stored).run(), o);
            const Count found = count(*c.model);
            EXPECT_EQ(found.kernels, 1) << found.why;
            EXPECT_EQ(found.warpgroups, 1) << found.why;
            // Attentions of libraries have operands and results of one type of 16 bits, and masks that are added.
            if (t.stored != DType::F32 && !w.projected && w.mask != Mask::Causal) {
                EXPECT_EQ(found.offered, 1) << found.why;
            }
        }
}

}  // namespace
}  // namespace tilewright
