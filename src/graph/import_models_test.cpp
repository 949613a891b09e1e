#include "graph/import_models_test.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "onnx/onnx_pb.h"

namespace tilewright::import_test {

namespace {

void fill(onnx::NodeProto& n, const std::string& op, const Names& inputs, const Names& outputs,
          const std::string& name) {
    n.set_op_type(op);
    for (const std::string& i : inputs) n.add_input(i);
    for (const std::string& o : outputs) n.add_output(o);
    if (!name.empty()) n.set_name(name);
}

void fill(onnx::ValueInfoProto& v, const std::string& name, const std::vector<int64_t>& dims, int data_type) {
    v.set_name(name);
    auto& type = *v.mutable_type()->mutable_tensor_type();
    type.set_elem_type(data_type);
    type.mutable_shape();
    for (int64_t d : dims) type.mutable_shape()->add_dim()->set_dim_value(d);
}

onnx::ModelProto if_model() {
    onnx::ModelProto m = new_model();
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {2});
    add_input(g, "cond", {}, 9);
    onnx::NodeProto& n = add_node(g, "If", {"cond"}, {"y"}, "choose");
    for (const char* branch : {"then_branch", "else_branch"}) {
        onnx::AttributeProto& a = add_attribute(n, branch);
        a.set_type(onnx::AttributeProto::GRAPH);
        a.mutable_g()->set_name(branch);
        add_initializer(*a.mutable_g(), "c", {1}, {branch[0] == 't' ? 1.0f : 2.0f});
        add_node(*a.mutable_g(), "Add", {"x", "c"}, {"z"});
        add_output(*a.mutable_g(), "z", {2});
    }
    add_output(g, "y", {2});
    return m;
}

onnx::ModelProto loop_model() {
    onnx::ModelProto m = new_model();
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "trips", {}, 7);
    add_input(g, "start", {2});
    onnx::NodeProto& n = add_node(g, "Loop", {"trips", "", "start"}, {"last"});
    onnx::AttributeProto& a = add_attribute(n, "body");
    a.set_type(onnx::AttributeProto::GRAPH);
    onnx::GraphProto& body = *a.mutable_g();
    add_input(body, "i", {}, 7);
    add_input(body, "go_on", {}, 9);
    add_input(body, "state", {2});
    add_node(body, "Identity", {"go_on"}, {"go_on_out"});
    add_node(body, "Add", {"state", "start"}, {"next"});
    add_output(body, "go_on_out", {}, 9);
    add_output(body, "next", {2});
    add_output(g, "last", {2});
    return m;
}

onnx::ModelProto function_model() {
    onnx::ModelProto m = new_model();
    onnx::OperatorSetIdProto& import = *m.add_opset_import();
    import.set_domain("local");
    import.set_version(1);
    onnx::FunctionProto& f = add_function(m, "local", "Scaled", {"x", "s"}, {"y"});
    f.add_attribute("alpha");
    add_reference(add_node(f, "LeakyRelu", {"x"}, {"t"}), "alpha", "alpha", onnx::AttributeProto::FLOAT);
    add_node(f, "Mul", {"t", "s"}, {"y"});
    onnx::AttributeProto fallback;
    fallback.set_name("beta");
    fallback.set_type(onnx::AttributeProto::INT);
    fallback.set_i(3);
    add_unknown(f, 11, fallback.SerializeAsString());
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {4});
    add_initializer(g, "s", {1}, {2});
    for (const auto& [from, to] : {std::pair("x", "a"), std::pair("a", "y")}) {
        onnx::NodeProto& n = add_node(g, "Scaled", {from, "s"}, {to}, std::string("call_") + to);
        n.set_domain("local");
        onnx::AttributeProto& alpha = add_attribute(n, "alpha");
        alpha.set_type(onnx::AttributeProto::FLOAT);
        alpha.set_f(0.25f);
    }
    add_output(g, "y", {4});
    return m;
}

/// A function that calls a function, with a graph attribute and a constant of strings, in a file that lists its
/// initialisers as inputs.
onnx::ModelProto nested_function_model() {
    onnx::ModelProto m = new_model();
    m.set_ir_version(3);
    onnx::OperatorSetIdProto& import = *m.add_opset_import();
    import.set_domain("l");
    import.set_version(1);
    onnx::FunctionProto& inner = add_function(m, "l", "In", {"c", "v"}, {"r", "v", "s"});
    onnx::NodeProto& branch = add_node(inner, "If", {"c"}, {"r"});
    add_reference(branch, "then_branch", "g", onnx::AttributeProto::GRAPH);
    add_reference(branch, "else_branch", "g", onnx::AttributeProto::GRAPH);
    onnx::AttributeProto& text = add_attribute(add_node(inner, "Constant", {}, {"s"}), "value");
    text.set_type(onnx::AttributeProto::TENSOR);
    text.mutable_t()->set_data_type(onnx::TensorProto::STRING);
    onnx::FunctionProto& outer = add_function(m, "l", "Out", {"c", "v"}, {"r"});
    onnx::NodeProto& call = add_node(outer, "In", {"c", "v"}, {"r", "w"}, "in");
    call.set_domain("l");
    add_unknown(call, 8, "o");
    add_unknown(inner, 13, "o");
    add_reference(call, "g", "g", onnx::AttributeProto::GRAPH);
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "c", {}, 9);
    add_input(g, "x", {1});
    add_input(g, "w", {1});
    add_initializer(g, "w", {1}, {1});
    onnx::NodeProto& n = add_node(g, "Out", {"c", "x"}, {"y"});
    n.set_domain("l");
    onnx::AttributeProto& a = add_attribute(n, "g");
    a.set_type(onnx::AttributeProto::GRAPH);
    add_node(*a.mutable_g(), "Add", {"x", "w"}, {"z"});
    add_output(*a.mutable_g(), "z", {1});
    add_output(g, "y", {1});
    return m;
}

onnx::ModelProto tensors_model() {
    onnx::ModelProto m = new_model(25);
    onnx::GraphProto& g = *m.mutable_graph();
    onnx::TensorProto& typed = *g.add_initializer();
    typed.set_name("typed");
    typed.add_dims(2);
    typed.set_data_type(10);
    typed.add_int32_data(0x3C00);
    typed.add_int32_data(0xC000);
    onnx::TensorProto& packed = *g.add_initializer();
    packed.set_name("packed");
    packed.add_dims(3);
    packed.set_data_type(22);
    packed.set_raw_data("\x71\x0f", 2);
    onnx::SparseTensorProto& sparse = *g.add_sparse_initializer();
    sparse.mutable_values()->set_name("sparse");
    sparse.mutable_values()->set_data_type(1);
    sparse.mutable_values()->add_dims(1);
    sparse.mutable_values()->add_float_data(7);
    sparse.mutable_indices()->set_data_type(7);
    sparse.mutable_indices()->add_dims(1);
    sparse.mutable_indices()->add_int64_data(2);
    sparse.add_dims(2);
    sparse.add_dims(2);
    onnx::NodeProto& constant = add_node(g, "Constant", {}, {"c"});
    onnx::AttributeProto& value = add_attribute(constant, "value");
    value.set_type(onnx::AttributeProto::TENSOR);
    value.mutable_t()->set_data_type(7);
    value.mutable_t()->add_int64_data(-1);
    onnx::NodeProto& n = add_node(g, "Custom", {"typed", "packed", "sparse", "c"}, {"y"});
    add_attribute(n, "ints").set_type(onnx::AttributeProto::INTS);
    onnx::AttributeProto& strings = add_attribute(n, "strings");
    strings.set_type(onnx::AttributeProto::STRINGS);
    strings.add_strings("one");
    add_output(g, "y", {});
    return m;
}

onnx::ModelProto external_model() {
    onnx::ModelProto m = new_model();
    onnx::GraphProto& g = *m.mutable_graph();
    onnx::TensorProto& w = *g.add_initializer();
    w.set_name("w");
    w.set_data_type(1);
    w.add_dims(4);
    w.set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] :
         {std::pair("location", "data.bin"), std::pair("offset", "16"), std::pair("length", "16")}) {
        auto& entry = *w.add_external_data();
        entry.set_key(key);
        entry.set_value(value);
    }
    add_node(g, "Neg", {"w"}, {"y"});
    add_output(g, "y", {4});
    return m;
}

}  // namespace

onnx::ModelProto new_model(int64_t opset) {
    onnx::ModelProto m;
    m.set_ir_version(8);
    m.set_producer_name("test");
    m.mutable_graph()->set_name("g");
    m.add_opset_import()->set_version(opset);
    return m;
}

onnx::NodeProto& add_node(onnx::GraphProto& g, const std::string& op, const Names& inputs, const Names& outputs,
                          const std::string& name) {
    onnx::NodeProto& n = *g.add_node();
    fill(n, op, inputs, outputs, name);
    return n;
}

onnx::NodeProto& add_node(onnx::FunctionProto& f, const std::string& op, const Names& inputs, const Names& outputs,
                          const std::string& name) {
    onnx::NodeProto& n = *f.add_node();
    fill(n, op, inputs, outputs, name);
    return n;
}

void add_input(onnx::GraphProto& g, const std::string& name, const std::vector<int64_t>& dims, int data_type) {
    fill(*g.add_input(), name, dims, data_type);
}

void add_output(onnx::GraphProto& g, const std::string& name, const std::vector<int64_t>& dims, int data_type) {
    fill(*g.add_output(), name, dims, data_type);
}

onnx::TensorProto& add_initializer(onnx::GraphProto& g, const std::string& name, const std::vector<int64_t>& dims,
                                   const std::vector<float>& values) {
    onnx::TensorProto& t = *g.add_initializer();
    t.set_name(name);
    t.set_data_type(onnx::TensorProto::FLOAT);
    for (int64_t d : dims) t.add_dims(d);
    t.set_raw_data(values.data(), values.size() * sizeof(float));
    return t;
}

onnx::FunctionProto& add_function(onnx::ModelProto& m, const std::string& domain, const std::string& name,
                                  const Names& inputs, const Names& outputs) {
    onnx::FunctionProto& f = *m.add_functions();
    f.set_domain(domain);
    f.set_name(name);
    for (const std::string& i : inputs) f.add_input(i);
    for (const std::string& o : outputs) f.add_output(o);
    f.add_opset_import()->set_version(13);
    return f;
}

onnx::AttributeProto& add_attribute(onnx::NodeProto& n, const std::string& name) {
    onnx::AttributeProto& a = *n.add_attribute();
    a.set_name(name);
    return a;
}

void add_reference(onnx::NodeProto& n, const std::string& name, const std::string& of_function, int type) {
    onnx::AttributeProto& a = add_attribute(n, name);
    a.set_ref_attr_name(of_function);
    a.set_type(static_cast<onnx::AttributeProto::AttributeType>(type));
}

void add_unknown(onnx::NodeProto& n, int field, const std::string& bytes) {
    n.mutable_unknown_fields()->AddLengthDelimited(field, bytes);
}

void add_unknown(onnx::FunctionProto& f, int field, const std::string& bytes) {
    f.mutable_unknown_fields()->AddLengthDelimited(field, bytes);
}

onnx::ModelProto relu_model() {
    onnx::ModelProto m = new_model();
    add_input(*m.mutable_graph(), "x", {2, 3});
    add_node(*m.mutable_graph(), "Relu", {"x"}, {"y"}, "act");
    add_output(*m.mutable_graph(), "y", {2, 3});
    return m;
}

std::vector<std::pair<std::string, onnx::ModelProto>> sample_models() {
    return {{"relu", relu_model()},
            {"if", if_model()},
            {"loop", loop_model()},
            {"function", function_model()},
            {"nested_function", nested_function_model()},
            {"tensors", tensors_model()},
            {"external", external_model()}};
}

std::string to_bytes(const onnx::ModelProto& m) { return m.SerializePartialAsString(); }

Model import_model(const onnx::ModelProto& m, const ImportLimits& limits, const std::string& folder) {
    const std::string bytes = to_bytes(m);
    Model model = load_model_from_bytes(bytes.data(), bytes.size(), folder, limits);
    for (const std::string& problem : model.graph.verify()) ADD_FAILURE() << problem;
    return model;
}

std::string import_error(const onnx::ModelProto& m, const ImportLimits& limits, const std::string& folder) {
    const std::string bytes = to_bytes(m);
    try {
        load_model_from_bytes(bytes.data(), bytes.size(), folder, limits);
    } catch (const ModelError& e) {
        return e.what();
    }
    ADD_FAILURE() << "the model was accepted";
    return "";
}

TemporaryFolder::TemporaryFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "tilewright-test-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) throw RuntimeError("cannot make a temporary folder");
    path_ = path;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::write(const std::string& name, const std::string& bytes) const {
    const std::string path = *this / name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path;
}

}  // namespace tilewright::import_test
