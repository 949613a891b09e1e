#pragma once
// ONNX protobuf -> Model.

#include <cstdint>
#include <string>
#include <vector>

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

/// A file of operators that are defined by others: the bytes of a ModelProto, of which only the functions count. Nodes
/// that have the domain, name and overload of one are replaced by its nodes, as those of a model's own functions are. A
/// model's own functions take precedence; two libraries with one function are an error.
struct FunctionLibrary {
    std::string name;  ///< in messages: the path
    std::string bytes;
    std::string folder;  ///< below which external data is opened; empty: refused
};
/// Reads the file alone. Throws RuntimeError where it cannot be read, ModelError for more than 2 GiB.
FunctionLibrary read_function_library(const std::string& path);

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
/// - `libraries` are read under the same limits, which count model and libraries together. Errors name the library.
Model load_model(const std::string& path, const ImportLimits& limits = {},
                 const std::vector<FunctionLibrary>& libraries = {});

/// As load_model, from bytes in memory; external data is refused unless `folder` is its folder.
Model load_model_from_bytes(const void* bytes, size_t size, const std::string& folder = {},
                            const ImportLimits& limits = {}, const std::vector<FunctionLibrary>& libraries = {});

/// One TensorProto file (the `.pb` of ONNX test cases): name and value. External data is not supported.
struct NamedTensor {
    std::string name;
    Tensor value;
};
NamedTensor load_tensor_pb(const std::string& path);
void save_tensor_pb(const std::string& path, const NamedTensor& tensor);

}  // namespace tilewright
