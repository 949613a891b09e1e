#pragma once
// Small models for tests.

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/lowering.h"

namespace tilewright::test {

inline constexpr float kInf = std::numeric_limits<float>::infinity();

/// A declared input: a textual dimension is a name, "" is unknown.
struct In {
    std::string name;
    DType dtype = DType::F32;
    std::vector<DeclaredDim> shape;
};

inline Node node(std::string op, std::vector<std::string> inputs, std::vector<std::string> outputs,
                 std::map<std::string, Attribute> attributes = {}) {
    Node n;
    n.name = op;
    n.op = std::move(op);
    n.inputs = std::move(inputs);
    n.outputs = std::move(outputs);
    n.attributes = std::move(attributes);
    return n;
}

inline std::vector<int64_t> ints(std::vector<int64_t> v) { return v; }

inline Graph graph(const std::vector<In>& inputs, std::vector<Node> nodes, const std::vector<std::string>& outputs,
                   std::map<std::string, Tensor> initializers = {}, int64_t opset = 17) {
    Graph g;
    for (const In& i : inputs) {
        DeclaredType t;
        t.dtype = i.dtype;
        t.has_dtype = true;
        t.shape = i.shape;
        g.inputs.push_back({i.name, t});
    }
    for (const std::string& o : outputs) g.outputs.push_back({o, {}});
    int k = 0;
    for (Node& n : nodes) {
        n.opset = opset;
        n.name += std::to_string(k++);
        g.nodes.push_back(std::move(n));
    }
    g.initializers = std::move(initializers);
    return g;
}

inline Model model(Graph g, int64_t opset = 17) {
    Model m;
    m.path = "<memory>";
    m.opsets[""] = opset;
    m.graph = std::move(g);
    for (Node& n : m.graph.nodes) n.opset = opset;
    return m;
}

/// The primitives' expressions, one a line: "y = [2] neg(@0) where @0 = x[i0]".
inline std::string primitives(const Program& p) {
    std::string s;
    for (const Primitive& q : p.primitives) {
        if (q.expr() != nullptr) s += p.values[q.outputs[0]].name + " = " + print(p, *q.expr()) + "\n";
        if (const auto* o = std::get_if<Opaque>(&q.kind))
            s += p.values[q.outputs[0]].name + " = " + o->op->print() + "\n";
        if (const auto* r = std::get_if<ReadScalar>(&q.kind))
            s += "?" + r->name + " = " + p.values[r->value].name + "[" + std::to_string(r->position) + "]\n";
    }
    return s;
}

/// One node with inputs unknown at compile time; `known` maps positions to the inputs with constant contents.
inline std::vector<Tensor> run(const std::string& op, const std::vector<Tensor>& inputs,
                               std::map<std::string, Attribute> attributes = {}, int64_t opset = 17,
                               const std::vector<size_t>& known = {}, size_t outputs = 1) {
    std::vector<In> declared;
    std::vector<std::string> names, results;
    std::map<std::string, Tensor> initializers;
    std::vector<Tensor> passed;
    for (size_t k = 0; k < inputs.size(); ++k) {
        names.push_back(inputs[k].defined() ? "x" + std::to_string(k) : "");
        if (!inputs[k].defined()) continue;
        if (std::find(known.begin(), known.end(), k) != known.end()) {
            initializers[names.back()] = inputs[k];
            continue;
        }
        declared.push_back({names.back(), inputs[k].dtype(), {}});
        for (const int64_t d : inputs[k].shape()) declared.back().shape.emplace_back(d);
        passed.push_back(inputs[k]);
    }
    for (size_t k = 0; k < outputs; ++k) results.push_back("y" + std::to_string(k));
    const Program p = lower(model(
        graph(declared, {node(op, names, results, std::move(attributes))}, results, std::move(initializers)), opset));
    if (const auto faults = verify(p); !faults.empty()) throw InternalError(faults.front());
    return interpret(p, passed);
}

template <class T>
Tensor tensor(DType t, Shape shape, const std::vector<T>& v) {
    return Tensor::of(t, std::move(shape), v);
}
inline Tensor floats(Shape shape, const std::vector<float>& v) { return tensor(DType::F32, std::move(shape), v); }
inline Tensor whole(Shape shape, const std::vector<int64_t>& v) { return tensor(DType::I64, std::move(shape), v); }

inline std::vector<double> numbers(const Tensor& t) {
    std::vector<double> v;
    for (int64_t i = 0; i < t.count(); ++i) v.push_back(t.get(i));
    return v;
}

}  // namespace tilewright::test
