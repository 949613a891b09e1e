#pragma once
// Models built in code, for the importer's tests and as seeds of its fuzz target.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph/import.h"

namespace onnx {
class AttributeProto;
class FunctionProto;
class GraphProto;
class ModelProto;
class NodeProto;
class TensorProto;
}  // namespace onnx

namespace tilewright::import_test {

using Names = std::vector<std::string>;

/// IR version 8, ONNX operator set 13, an empty graph "g".
onnx::ModelProto new_model(int64_t opset = 13);
onnx::NodeProto& add_node(onnx::GraphProto& g, const std::string& op, const Names& inputs, const Names& outputs,
                          const std::string& name = "");
onnx::NodeProto& add_node(onnx::FunctionProto& f, const std::string& op, const Names& inputs, const Names& outputs,
                          const std::string& name = "");
/// `data_type` as in TensorProto (1: float, 7: int64).
void add_input(onnx::GraphProto& g, const std::string& name, const std::vector<int64_t>& dims, int data_type = 1);
void add_output(onnx::GraphProto& g, const std::string& name, const std::vector<int64_t>& dims = {}, int data_type = 1);
/// An initialiser of type float, its data raw.
onnx::TensorProto& add_initializer(onnx::GraphProto& g, const std::string& name, const std::vector<int64_t>& dims,
                                   const std::vector<float>& values);
onnx::FunctionProto& add_function(onnx::ModelProto& m, const std::string& domain, const std::string& name,
                                  const Names& inputs, const Names& outputs);
onnx::AttributeProto& add_attribute(onnx::NodeProto& n, const std::string& name);
/// An attribute that refers to an attribute of the enclosing function.
void add_reference(onnx::NodeProto& n, const std::string& name, const std::string& of_function, int type);
/// A length-delimited field that the protobuf classes in use do not have.
void add_unknown(onnx::NodeProto& n, int field, const std::string& bytes);
void add_unknown(onnx::FunctionProto& f, int field, const std::string& bytes);

/// y = Relu(x), both float[2, 3].
onnx::ModelProto relu_model();
/// One small model for each feature of the format, with its name.
std::vector<std::pair<std::string, onnx::ModelProto>> sample_models();

std::string to_bytes(const onnx::ModelProto& m);
/// Imports, and checks that the graph verifies.
Model import_model(const onnx::ModelProto& m, const ImportLimits& limits = {}, const std::string& folder = {});
/// The importer's error for the model; fails the test if the model is accepted.
std::string import_error(const onnx::ModelProto& m, const ImportLimits& limits = {}, const std::string& folder = {});

/// A new folder, removed with its contents at the end.
class TemporaryFolder {
  public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    const std::string& path() const { return path_; }
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }
    std::string write(const std::string& name, const std::string& bytes) const;

  private:
    std::string path_;
};

}  // namespace tilewright::import_test
