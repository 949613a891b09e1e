#pragma once
// ONNX protobuf -> Model.

#include <cstdint>
#include <string>

#include "graph/graph.h"

namespace tilewright {

/// Budgets that keep a hostile file from exhausting the machine on load.
struct ImportLimits {
    int64_t max_nodes = 1'000'000;      ///< over all graphs, after function inlining
    int max_subgraph_depth = 32;        ///< nested If/Loop/Scan bodies, and nested function calls
    int64_t max_tensor_bytes = int64_t{1} << 38;  ///< one initialiser, as declared by its dims
    int64_t max_total_bytes = int64_t{1} << 40;
    int64_t max_name_bytes = 4096;      ///< longer names are cut in messages, never refused
};

/// Reads a model file. External data is opened only below the model's own folder: relative paths without "..", no
/// symbolic links, regular files with one link, ranges inside the file. Throws ModelError (the file, and the node or
/// tensor inside it) and RuntimeError (the machine). Large raw initialisers are views of one shared copy of the file.
Model load_model(const std::string& path, const ImportLimits& limits = {});

/// The same from bytes in memory; external data is refused unless `folder` names where it lies.
Model load_model_from_bytes(const void* bytes, size_t size, const std::string& folder = {}, const ImportLimits& limits = {});

/// One TensorProto file (the `.pb` of ONNX test cases): name and value.
struct NamedTensor {
    std::string name;
    Tensor value;
};
NamedTensor load_tensor_pb(const std::string& path);
void save_tensor_pb(const std::string& path, const NamedTensor& tensor);

}  // namespace tilewright
