#pragma once
// Models of one node with given numbers, ranks and bodies, and functions that run them.

#include <memory>
#include <string>
#include <vector>

#include "tool/tool_runner_test.h"

namespace tilewright::tool_test {

using import_test::Names;

/// Element types as in TensorProto.
inline constexpr int kFloat = 1, kUint8 = 2, kInt64 = 7, kBool = 9, kInt4 = 22;

/// An initialiser of 64-bit integers.
void add_ints(onnx::GraphProto& g, const std::string& name, const std::vector<int64_t>& dims,
              const std::vector<int64_t>& values);

// Attributes.
void set_ints(onnx::NodeProto& n, const std::string& name, const std::vector<int64_t>& values);
void set_int(onnx::NodeProto& n, const std::string& name, int64_t value);
void set_text(onnx::NodeProto& n, const std::string& name, const std::string& value);
onnx::GraphProto& set_graph(onnx::NodeProto& n, const std::string& name);

/// Replaces the size of dimension `axis` of the graph's last input by a name.
void open_dimension(onnx::GraphProto& g, int axis, const std::string& name);

/// A model of one node "n" with the output "y"; tests add the other parts.
class OneNode {
    std::unique_ptr<onnx::ModelProto> owned_;

  public:
    OneNode(const std::string& op, const Names& inputs, int64_t opset = 18, int result = kFloat);
    ~OneNode();
    OneNode(const OneNode&) = delete;
    OneNode& operator=(const OneNode&) = delete;

    onnx::ModelProto& model;
    onnx::GraphProto& graph;
    onnx::NodeProto& node;
};

class HostileGraph : public testing::Test {
  protected:
    Result run(const onnx::ModelProto& model, const std::vector<std::string>& more = {},
               const Limits& limits = {20}) const;
    /// True for a result and for a proper error; any other end is a bug.
    static testing::AssertionResult runs_or_is_refused(const Result& r);
    Workplace place;
};

}  // namespace tilewright::tool_test
