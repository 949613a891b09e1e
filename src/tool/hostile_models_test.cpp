#include "tool/hostile_models_test.h"

#include "onnx/onnx_pb.h"

namespace tilewright::tool_test {

void add_ints(onnx::GraphProto& g, const std::string& name, const std::vector<int64_t>& dims,
              const std::vector<int64_t>& values) {
    onnx::TensorProto& t = *g.add_initializer();
    t.set_name(name);
    t.set_data_type(kInt64);
    for (const int64_t d : dims) t.add_dims(d);
    for (const int64_t v : values) t.add_int64_data(v);
}

void set_ints(onnx::NodeProto& n, const std::string& name, const std::vector<int64_t>& values) {
    onnx::AttributeProto& a = import_test::add_attribute(n, name);
    a.set_type(onnx::AttributeProto::INTS);
    for (const int64_t v : values) a.add_ints(v);
}

void set_int(onnx::NodeProto& n, const std::string& name, int64_t value) {
    onnx::AttributeProto& a = import_test::add_attribute(n, name);
    a.set_type(onnx::AttributeProto::INT);
    a.set_i(value);
}

void set_text(onnx::NodeProto& n, const std::string& name, const std::string& value) {
    onnx::AttributeProto& a = import_test::add_attribute(n, name);
    a.set_type(onnx::AttributeProto::STRING);
    a.set_s(value);
}

onnx::GraphProto& set_graph(onnx::NodeProto& n, const std::string& name) {
    onnx::AttributeProto& a = import_test::add_attribute(n, name);
    a.set_type(onnx::AttributeProto::GRAPH);
    a.mutable_g()->set_name(name);
    return *a.mutable_g();
}

void open_dimension(onnx::GraphProto& g, int axis, const std::string& name) {
    onnx::ValueInfoProto& input = *g.mutable_input(g.input_size() - 1);
    input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(axis)->set_dim_param(name);
}

OneNode::OneNode(const std::string& op, const Names& inputs, int64_t opset, int result)
    : owned_(std::make_unique<onnx::ModelProto>(import_test::new_model(opset))),
      model(*owned_),
      graph(*model.mutable_graph()),
      node(import_test::add_node(graph, op, inputs, {"y"}, "n")) {
    import_test::add_output(graph, "y", {}, result);
    graph.mutable_output(0)->mutable_type()->mutable_tensor_type()->clear_shape();
}

OneNode::~OneNode() = default;

Result HostileGraph::run(const onnx::ModelProto& model, const std::vector<std::string>& more,
                         const Limits& limits) const {
    std::vector<std::string> arguments = {"run", place.write("model.onnx", model)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return place.run(arguments, limits);
}

testing::AssertionResult HostileGraph::runs_or_is_refused(const Result& r) {
    return r.status == 0 ? testing::AssertionSuccess() : refused(r);
}

}  // namespace tilewright::tool_test
