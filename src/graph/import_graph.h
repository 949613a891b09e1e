#pragma once
// GraphProto -> Graph: names resolved, model-local functions inlined, nodes in order.

#include <map>
#include <string>
#include <vector>

#include "graph/import_tensor.h"

namespace onnx {
class ModelProto;
}

namespace tilewright::import_detail {

/// An initialiser of the main graph that was read ahead of the other content.
struct NamedInitializer {
    std::string name;
    ImportedTensor tensor;
};

/// Converts the main graph of `model`, with its initialisers in `initializers`. `opsets` are the model's imports, with
/// the default domain as "". Moves data out of `model`.
Graph convert_main_graph(onnx::ModelProto& model, std::vector<NamedInitializer> initializers,
                         const std::map<std::string, int64_t>& opsets, TensorReader& tensors, Budget& budget);

/// "ai.onnx" -> "".
std::string normalised_domain(const std::string& domain);

}  // namespace tilewright::import_detail
