#pragma once
// Cases of operators of com.microsoft with ONNX Runtime's results, as scripts/contrib_cases.py and
// scripts/contrib_quant_cases.py write them.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string_view>

#include "ops/rule_test.h"

namespace tilewright::test {

struct OperatorCase {
    std::string op;
    std::map<std::string, Attribute> attributes;
    std::vector<Tensor> inputs;        ///< Tensor(): missing
    std::map<size_t, Tensor> outputs;  ///< those that are compared, by position
    size_t output_count = 1;
    std::string domain = "com.microsoft";
};

/// An input that is not given: a tensor without shape or elements.
inline bool missing(const Tensor& t) { return t.rank() == 0 && t.count() == 0; }

inline Tensor tensor_of(std::istringstream& line) {
    std::string type, dims;
    line >> type >> dims;
    if (type == "none") return Tensor();
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

inline Attribute attribute_of(std::istringstream& line) {
    std::string kind, text;
    line >> kind;
    if (kind == "string") {
        line >> text;
        return text;
    }
    if (kind == "float" || kind == "floats") {
        std::vector<float> all;
        for (float x = 0; line >> x;) all.push_back(x);
        if (kind == "floats") return all;
        return all.at(0);
    }
    std::vector<int64_t> all;
    for (int64_t n = 0; line >> n;) all.push_back(n);
    if (kind == "ints") return all;
    return all.at(0);
}

inline std::vector<OperatorCase> operator_cases(const std::string& name) {
    std::ifstream file(std::string(TW_SOURCE_DIR) + "/src/ops/" + name);
    std::vector<OperatorCase> out;
    for (std::string text; std::getline(file, text);) {
        std::istringstream line(text);
        std::string word, attribute;
        line >> word;
        if (word == "case") line >> out.emplace_back().op;
        if (word == "domain") out.back().domain = "";
        if (word == "outputs") line >> out.back().output_count;
        if (word == "attr") {
            line >> attribute;
            out.back().attributes[attribute] = attribute_of(line);
        }
        if (word == "input") out.back().inputs.push_back(tensor_of(line));
        if (word == "output") {
            size_t position = 0;
            line >> position;
            out.back().outputs[position] = tensor_of(line);
        }
    }
    return out;
}

/// One node. A dimension of a name in `names` is dynamic: input -> dimension -> name.
inline Model model_of(const OperatorCase& c, const std::map<std::pair<size_t, size_t>, std::string>& names = {}) {
    std::vector<In> declared;
    std::vector<std::string> inputs, outputs, results;
    for (size_t k = 0; k < c.inputs.size(); ++k) {
        inputs.push_back(missing(c.inputs[k]) ? "" : "x" + std::to_string(k));
        if (missing(c.inputs[k])) continue;
        const Shape& shape = c.inputs[k].shape();
        declared.push_back({inputs.back(), c.inputs[k].dtype(), {shape.begin(), shape.end()}});
        for (size_t d = 0; d < shape.size(); ++d)
            if (const auto it = names.find({k, d}); it != names.end()) declared.back().shape[d] = it->second;
    }
    for (size_t k = 0; k < c.output_count; ++k) {
        const bool compared = c.outputs.empty() ? k == 0 : c.outputs.count(k) != 0;
        outputs.push_back(compared ? "y" + std::to_string(k) : "");
        if (compared) results.push_back(outputs.back());
    }
    Node n = node(c.op, inputs, outputs, c.attributes);
    n.domain = c.domain;
    Model m = model(graph(declared, {n}, results));
    if (!c.domain.empty()) {
        m.opsets[c.domain] = 1;
        for (Node& each : m.graph.nodes) each.opset = 1;
    }
    return m;
}

/// The inputs that are given.
inline std::vector<Tensor> given(const OperatorCase& c) {
    std::vector<Tensor> out;
    for (const Tensor& t : c.inputs)
        if (!missing(t)) out.push_back(t);
    return out;
}

/// The error of lowering; "accepted" if there is none.
inline std::string refusal(const OperatorCase& c) {
    try {
        lower(model_of(c));
    } catch (const ModelError& e) {
        return e.what();
    }
    return "accepted";
}

}  // namespace tilewright::test
