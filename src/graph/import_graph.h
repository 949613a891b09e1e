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

/// A file and how its tensors are read.
struct ReadFile {
    onnx::ModelProto& proto;
    std::map<std::string, int64_t> opsets;  ///< what it imports, with the default domain as ""
    TensorReader& tensors;
    std::string name;  ///< of a library
};

/// Converts the main graph of `model`, with its initialisers in `initializers`, with functions of the model and of
/// `libraries`. Moves data out of the files.
Graph convert_main_graph(ReadFile& model, std::vector<NamedInitializer> initializers, std::vector<ReadFile>& libraries,
                         Budget& budget);

/// "ai.onnx" -> "".
std::string normalised_domain(const std::string& domain);

}  // namespace tilewright::import_detail
