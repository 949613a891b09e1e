#pragma once
// Model -> ONNX protobuf, and parts of models.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace tilewright {

/// The bytes of a model file. Functions stay inlined, as the importer leaves them; weights are in the file. Throws
/// ModelError if nodes of one domain are of several versions of its operator set (functions may bring their own), and
/// RuntimeError above the format's 2 GiB.
std::string model_to_bytes(const Model& model);

/// Part of a model.
struct Submodel {
    Model model;
    std::vector<std::string> inputs;  ///< names, in the order of the model's inputs
};
/// The nodes called `nodes`, and those between them and the tensors `known`: the inputs are the known tensors that
/// these nodes read, and initialisers are copied. `outputs` are tensors of the part. Types of inputs and outputs are
/// those in `known` and `outputs`. Throws ModelError where a node is reached whose inputs are not known and that the
/// model lacks.
Submodel submodel(const Model& model, const std::set<std::string>& nodes, const std::vector<GraphInput>& outputs,
                  const std::map<std::string, DeclaredType>& known);

/// The tensor type with these numbers as dimensions.
DeclaredType declared_type(const Tensor& tensor);

}  // namespace tilewright
