#pragma once
// Models of one node whose numbers, ranks and bodies are a test's own, and what runs them.

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

/// Names dimension `axis` of the graph's last input, in place of its size.
void open_dimension(onnx::GraphProto& g, int axis, const std::string& name);

/// A model of one node "n" that gives "y"; the rest is added to it.
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
    /// Either is right: a result, or an error. Nothing else is.
    static testing::AssertionResult runs_or_is_refused(const Result& r);
    Workplace place;
};

}  // namespace tilewright::tool_test
