#pragma once
// A graph of ONNX Runtime -> Model, without the file format in between.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "provider/api.h"

namespace tilewright::provider {

/// Nodes of a graph and the values at their border. Constant initializers are no inputs.
struct Region {
    std::vector<const OrtNode*> nodes;  ///< in topological order
    std::vector<const OrtValueInfo*> inputs, outputs;
};

enum class Constants : uint8_t {
    View,  ///< of ONNX Runtime's memory, for as long as the graph exists
    Copy
};

/// What ONNX Runtime declares of a value. The shape of a value without one is absent; ONNX Runtime 1.23 does not
/// distinguish it from that of a scalar, so there it is absent for both, unless `scalar` says that the rank is known.
DeclaredType declared_type(const Api& api, const OrtValueInfo* value, bool scalar = false);

/// The region as a model. The node at position k is named as the original, or "OPERATOR_k" if it has no name; the n-th
/// node of a name gets "#n" behind it, so that names are unique. Initializers of types that Tensor does not have are
/// missing in the result. Throws ApiError, and ModelError for what no model can represent.
Model read_region(const Api& api, const OrtGraph* graph, const Region& region, Constants constants);

}  // namespace tilewright::provider
