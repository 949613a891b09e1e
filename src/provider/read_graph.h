#pragma once
// A graph of ONNX Runtime -> Model, without the file format in between.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "graph/graph.h"
#include "provider/api.h"

namespace tilewright::provider {

/// Nodes of a graph and the values at their border. Constant initializers are no inputs.
struct Region {
    std::vector<const OrtNode*> nodes;                 ///< in topological order
    std::vector<const OrtValueInfo*> inputs, outputs;  ///< inputs: of known rank
    bool compiled = false;                             ///< the node is one EPContext node (provider/context_node.h)
};

enum class Constants : uint8_t {
    View,  ///< of ONNX Runtime's memory, for as long as the graph exists
    Copy
};

/// A graph's nodes in topological order; where there is a choice, as in the model's file. Plans and so the last bits of
/// results follow this order, and ONNX Runtime's own differs from the file's.
std::vector<const OrtNode*> nodes_of(const Api& api, const OrtGraph* graph);

/// What ONNX Runtime declares of a value. The shape is absent if its rank is unknown. ONNX Runtime 1.23 does not
/// distinguish this from a scalar: there it is taken for a scalar if the model declares the value as an input.
DeclaredType declared_type(const Api& api, const OrtValueInfo* value);

/// A node's attribute of this name; nothing for a subgraph. Throws ModelError for a type that Attribute does not have.
std::optional<Attribute> attribute_of(const Api& api, const OrtNode* node, std::string_view name);
/// The same, if it has this type.
template <class T>
std::optional<T> attribute_of(const Api& api, const OrtNode* node, std::string_view name) {
    std::optional<Attribute> found = attribute_of(api, node, name);
    T* value = found ? std::get_if<T>(&*found) : nullptr;
    return value == nullptr ? std::nullopt : std::optional<T>(std::move(*value));
}

/// The region as a model. The node at position k is named as the original, or "OPERATOR_k" if it has no name; the n-th
/// node of a name gets "#n" behind it, so that names are unique. Initializers of types that Tensor does not have are
/// missing in the result. Throws ApiError, and ModelError for what no model can represent.
Model read_region(const Api& api, const OrtGraph* graph, const Region& region, Constants constants);

}  // namespace tilewright::provider
