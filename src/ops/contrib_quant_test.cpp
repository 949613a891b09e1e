// The quantised operators of com.microsoft against ONNX Runtime's results (scripts/contrib_quant_cases.py).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "ops/rule_test.h"

namespace tilewright {
namespace {

using test::floats;
using test::graph;
using test::In;
using testing::HasSubstr;

constexpr std::string_view kDomain = "com.microsoft";

struct QuantCase {
    std::string op;
    std::map<std::string, Attribute> attributes;
    std::vector<Tensor> inputs;
    Tensor output;
};

Tensor tensor_of(std::istringstream& line) {
    std::string type, dims;
    line >> type >> dims;
    Shape shape;
    std::istringstream sizes(dims);
    for (std::string d; dims != "scalar" && std::getline(sizes, d, ',');) shape.push_back(std::stoll(d));
    Tensor t(*dtype_from_string(type), shape);
    for (int64_t i = 0; i < t.count(); ++i) {
        double x = 0;
        line >> x;
        t.set(i, x);
    }
    EXPECT_FALSE(line.fail());
    return t;
}

Attribute attribute_of(std::istringstream& line) {
    std::string kind;
    line >> kind;
    if (kind == "float") {
        float x = 0;
        line >> x;
        return x;
    }
    std::vector<int64_t> all;
    for (int64_t n = 0; line >> n;) all.push_back(n);
    if (kind == "ints") return all;
    return all.at(0);
}

std::vector<QuantCase> quant_cases() {
    std::ifstream file(std::string(TW_SOURCE_DIR) + "/src/ops/contrib_quant_cases.txt");
    std::vector<QuantCase> out;
    for (std::string text; std::getline(file, text);) {
        std::istringstream line(text);
        std::string word, name;
        line >> word;
        if (word == "case") line >> out.emplace_back().op;
        if (word == "attr") {
            line >> name;
            out.back().attributes[name] = attribute_of(line);
        }
        if (word == "input") out.back().inputs.push_back(tensor_of(line));
        if (word == "output") out.back().output = tensor_of(line);
    }
    return out;
}

Model model_of(const QuantCase& c) {
    std::vector<In> declared;
    std::vector<std::string> names;
    for (size_t k = 0; k < c.inputs.size(); ++k) {
        const Shape& shape = c.inputs[k].shape();
        names.push_back("x" + std::to_string(k));
        declared.push_back({names.back(), c.inputs[k].dtype(), {shape.begin(), shape.end()}});
    }
    Node n = test::node(c.op, names, {"y"}, c.attributes);
    n.domain = kDomain;
    Model m = test::model(graph(declared, {n}, {"y"}));
    m.opsets[std::string(kDomain)] = 1;
    for (Node& node : m.graph.nodes) node.opset = 1;
    return m;
}

std::string refusal(const QuantCase& c) {
    try {
        lower(model_of(c));
    } catch (const ModelError& e) {
        return e.what();
    }
    return "accepted";
}

/// ONNX Runtime rounds ratios of scales, a polynomial's sigmoid and a table's exponentials, so results may differ by
/// one quantum. The others are floats of integer sums.
TEST(ContribQuant, MatchesOnnxRuntime) {
    const std::vector<QuantCase> all = quant_cases();
    ASSERT_GE(all.size(), 50u);
    int64_t quanta = 0, elements = 0;
    for (const QuantCase& c : all) {
        const Program p = lower(model_of(c));
        EXPECT_EQ(verify(p), std::vector<std::string>()) << c.op;
        const Tensor y = interpret(p, c.inputs).front();
        ASSERT_EQ(y.dtype(), c.output.dtype()) << c.op;
        ASSERT_EQ(y.shape(), c.output.shape()) << c.op;
        for (int64_t i = 0; i < y.count(); ++i) {
            const double expected = c.output.get(i), found = y.get(i);
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

TEST(ContribQuant, RejectsMismatchesWithNodeAndInput) {
    const Tensor x(DType::U8, {2, 3}), scale = floats({}, {0.1F}), zero(DType::U8, {}), other(DType::I8, {});
    const Tensor real = floats({2, 3}, {1, 2, 3, 4, 5, 6});
    const std::vector<std::pair<QuantCase, std::string>> wrong = {
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
