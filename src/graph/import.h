#pragma once
// ONNX protobuf -> Model.

#include <cstdint>
#include <string>

#include "graph/graph.h"

namespace tilewright {

/// Limits that keep a hostile file from exhausting the machine.
struct ImportLimits {
    int64_t max_nodes = 1'000'000;                ///< over all graphs, after function inlining
    int max_subgraph_depth = 32;                  ///< nested If/Loop/Scan bodies, and nested function calls
    int64_t max_tensor_bytes = int64_t{1} << 38;  ///< one initialiser, as declared by its dims
    int64_t max_total_bytes = int64_t{1} << 40;
    /// Bytes that inlined functions and expanded sparse tensors may add to the file's own content.
    int64_t max_expanded_bytes = int64_t{1} << 30;
};

/// Reads a model file of any IR and operator set version. Throws ModelError (with the file, and the node or tensor in
/// it) and RuntimeError (no such file, out of memory).
///
/// - Large raw initialisers are read directly into 64-byte aligned tensors. Nothing is mapped, so later changes of the
/// file have no effect. Peak memory is the file's size plus a second copy of everything except raw data.
/// - Calls of model-local functions are inlined; nodes are sorted topologically; a subgraph's name that shadows one of
/// an enclosing graph is renamed.
/// - An initialiser takes precedence over a graph input of the same name (old files list every initialiser as an
/// input).
/// - Constants of types that Tensor does not have (strings, complex) are dropped; a node that reads one is an error.
/// - External data is opened only below the model's own folder: relative paths without "..", no symbolic links, regular
/// files with one link, ranges inside the file.
Model load_model(const std::string& path, const ImportLimits& limits = {});

/// As load_model, from bytes in memory; external data is refused unless `folder` is its folder.
Model load_model_from_bytes(const void* bytes, size_t size, const std::string& folder = {},
                            const ImportLimits& limits = {});

/// One TensorProto file (the `.pb` of ONNX test cases): name and value. External data is not supported.
struct NamedTensor {
    std::string name;
    Tensor value;
};
NamedTensor load_tensor_pb(const std::string& path);
void save_tensor_pb(const std::string& path, const NamedTensor& tensor);

}  // namespace tilewright
