#pragma once
// Graph: the model as in the ONNX file. Only the file format is interpreted here.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/quoted_name.h"
#include "base/tensor.h"
#include "runtime/model_info.h"

namespace tilewright {

struct Graph;

/// An attribute's value. Strings are bytes; sparse tensors are expanded. A subgraph (If, Loop, Scan) refers to values
/// of the enclosing graphs by name.
using Attribute = std::variant<int64_t, float, std::string, Tensor, std::vector<int64_t>, std::vector<float>,
                               std::vector<std::string>, std::vector<Tensor>, std::shared_ptr<const Graph>>;

/// A declared dimension: a number, a name ("batch"), or unknown (std::monostate). Text such as "-1" is unknown.
using DeclaredDim = std::variant<std::monostate, int64_t, std::string>;

/// A declared type. `shape` is absent if the rank is unknown. Sequences and optionals of tensors carry `container`.
struct DeclaredType {
    enum class Container : uint8_t { None, Sequence, Optional, OptionalSequence, Unsupported };
    DType dtype = DType::F32;
    bool has_dtype = false;
    std::optional<std::vector<DeclaredDim>> shape;
    Container container = Container::None;
    std::string
        unsupported;  ///< a declared type that Tilewright does not support, for messages ("string", "complex64", "map")
};

/// One operator. Missing optional inputs and outputs are empty names.
struct Node {
    std::string name;    ///< as in the file; generated if the file has none: "Conv_17" (operator and position), unique
    std::string op;      ///< "Conv"
    std::string domain;  ///< "" for the default ONNX domain ("ai.onnx" is normalised to "")
    int64_t opset = 0;   ///< version of `domain` that the model (or the function it was inlined from) imports
    std::vector<std::string> inputs;
    std::vector<std::string> outputs;
    std::map<std::string, Attribute> attributes;

    bool has(const std::string& attribute) const { return attributes.count(attribute) != 0; }
    /// The attribute, or `fallback` if absent. Throws ModelError with node and attribute if it has another type.
    int64_t attr_int(const std::string& attribute, int64_t fallback) const;
    float attr_float(const std::string& attribute, float fallback) const;
    std::string attr_string(const std::string& attribute, const std::string& fallback) const;
    std::vector<int64_t> attr_ints(const std::string& attribute, const std::vector<int64_t>& fallback) const;
    std::vector<float> attr_floats(const std::string& attribute, const std::vector<float>& fallback) const;
    std::vector<std::string> attr_strings(const std::string& attribute, const std::vector<std::string>& fallback) const;
    /// Null if absent.
    const Tensor* attr_tensor(const std::string& attribute) const;
    const Graph* attr_graph(const std::string& attribute) const;

    /// "node 'conv1' (Conv, opset 13)": the form used in messages.
    std::string describe() const;
};

struct GraphInput {
    std::string name;
    DeclaredType type;
};

/// A (sub)graph. Nodes are in topological order and every name is defined once, before its use, in this graph or an
/// enclosing one; `verify()` checks that.
struct Graph {
    std::string name;
    std::vector<GraphInput> inputs;              ///< without the initialisers that old files list among the inputs
    std::vector<GraphInput> outputs;             ///< names of values of this graph (or, in a subgraph, of an outer one)
    std::map<std::string, Tensor> initializers;  ///< dense; sparse ones are expanded on import
    std::map<std::string, DeclaredType> value_info;  ///< declared types of intermediate values
    std::vector<Node> nodes;

    /// Empty if the graph is valid; otherwise one sentence per violation, with its place.
    std::vector<std::string> verify() const;
    /// Stable text: inputs, initialisers (type, shape, hash), nodes with attributes, outputs.
    std::string print() const;
};

/// A whole file.
struct Model {
    std::string path;  ///< for messages; "<memory>" if not from a file
    std::string producer;
    ModelInfo info;
    int64_t ir_version = 0;
    std::map<std::string, int64_t> opsets;  ///< domain ("" = ONNX) -> version
    bool external_data = false;             ///< some of its tensors lie in other files
    Graph graph;
};

}  // namespace tilewright
