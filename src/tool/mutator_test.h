#pragma once
// Random changes of ONNX models: structure, types, sizes, attributes, constants, and bytes of the file.

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace onnx {
class AttributeProto;
class GraphProto;
class ModelProto;
class NodeProto;
class TensorProto;
class ValueInfoProto;
}  // namespace onnx

namespace tilewright::tool_test {

class Mutator {
  public:
    /// `operators`: the operator types from which a node's new type is drawn.
    Mutator(uint64_t seed, const std::vector<std::string>& operators) : random_(seed), operators_(operators) {}

    /// A number in [0, n); 0 for n = 0.
    size_t below(size_t n) { return n == 0 ? 0 : random_() % n; }

    /// The serialised model after one to three changes. One mutant in sixteen has changed bytes as well.
    std::string mutate(onnx::ModelProto model);

  private:
    // Each mutation returns false if the model has no element of the kind that was drawn.
    bool change(onnx::ModelProto& m);
    bool change(onnx::GraphProto& g, onnx::NodeProto& n);
    bool change(onnx::ValueInfoProto& v);
    bool change(onnx::TensorProto& t);
    bool change_value(onnx::TensorProto& t);
    bool change(onnx::AttributeProto& a);
    bool constant_to_input(onnx::GraphProto& g);
    void change_bytes(std::string& bytes);

    int at(int size) { return static_cast<int>(below(static_cast<size_t>(size))); }
    int64_t number();
    int element_type() { return 1 + at(23); }

    std::mt19937_64 random_;
    const std::vector<std::string>& operators_;
};

}  // namespace tilewright::tool_test
