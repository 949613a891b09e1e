#pragma once
// ONNX protobuf -> Model.

#include <cstdint>
#include <string>

#include "graph/graph.h"

namespace tilewright {

/// Budgets that keep a hostile file from exhausting the machine on load.
struct ImportLimits {
    int64_t max_nodes = 1'000'000;                ///< over all graphs, after function inlining
    int max_subgraph_depth = 32;                  ///< nested If/Loop/Scan bodies, and nested function calls
    int64_t max_tensor_bytes = int64_t{1} << 38;  ///< one initialiser, as declared by its dims
    int64_t max_total_bytes = int64_t{1} << 40;
    /// What inlined functions and sparse tensors made dense may add to the file's own content.
    int64_t max_expanded_bytes = int64_t{1} << 30;
};

/// Reads a model file, of any IR and operator set version. Throws ModelError (naming the file, and the node or tensor
/// in it) and RuntimeError (the machine: no such file, no memory).
///
/// - Large raw initialisers are read straight into 64-byte aligned tensors; nothing is mapped, so a file that changes
///   later changes nothing here. Peak memory is the file's size plus what is not raw data once more.
/// - Calls of model-local functions are inlined; nodes are put in topological order; a subgraph's name that hides one
/// of
///   a graph around it is renamed.
/// - An initialiser wins over a graph input of the same name (in old files every initialiser is listed as one).
/// - Constants of types that Tensor does not have (strings, complex) are dropped, and an error if a node reads them.
/// - External data is opened only below the model's own folder: relative paths without "..", no symbolic links, regular
///   files with one link, ranges inside the file.
Model load_model(const std::string& path, const ImportLimits& limits = {});

/// The same from bytes in memory; external data is refused unless `folder` names where it lies.
Model load_model_from_bytes(const void* bytes, size_t size, const std::string& folder = {},
                            const ImportLimits& limits = {});

/// One TensorProto file (the `.pb` of ONNX test cases): name and value. Its data lies in the file itself.
struct NamedTensor {
    std::string name;
    Tensor value;
};
NamedTensor load_tensor_pb(const std::string& path);
void save_tensor_pb(const std::string& path, const NamedTensor& tensor);

}  // namespace tilewright
