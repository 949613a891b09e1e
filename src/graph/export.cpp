#include "graph/export.h"

#include <algorithm>

#include "base/error.h"
#include "graph/import_tensor.h"
#include "onnx/onnx_pb.h"

namespace tilewright {

namespace {

using import_detail::dtype_to_onnx;
using import_detail::tensor_to_proto;

void write(const Graph& graph, onnx::GraphProto& out);

/// One overload for each alternative of Attribute.
struct AttributeWriter {
    onnx::AttributeProto& out;

    void operator()(int64_t v) const {
        out.set_type(onnx::AttributeProto::INT);
        out.set_i(v);
    }
    void operator()(float v) const {
        out.set_type(onnx::AttributeProto::FLOAT);
        out.set_f(v);
    }
    void operator()(const std::string& v) const {
        out.set_type(onnx::AttributeProto::STRING);
        out.set_s(v);
    }
    void operator()(const Tensor& v) const {
        out.set_type(onnx::AttributeProto::TENSOR);
        tensor_to_proto(v, "", *out.mutable_t());
    }
    void operator()(const std::vector<int64_t>& list) const {
        out.set_type(onnx::AttributeProto::INTS);
        for (const int64_t v : list) out.add_ints(v);
    }
    void operator()(const std::vector<float>& list) const {
        out.set_type(onnx::AttributeProto::FLOATS);
        for (const float v : list) out.add_floats(v);
    }
    void operator()(const std::vector<std::string>& list) const {
        out.set_type(onnx::AttributeProto::STRINGS);
        for (const std::string& v : list) out.add_strings(v);
    }
    void operator()(const std::vector<Tensor>& list) const {
        out.set_type(onnx::AttributeProto::TENSORS);
        for (const Tensor& v : list) tensor_to_proto(v, "", *out.add_tensors());
    }
    void operator()(const std::shared_ptr<const Graph>& v) const {
        out.set_type(onnx::AttributeProto::GRAPH);
        write(*v, *out.mutable_g());
    }
};

void write(const DeclaredType& type, onnx::TypeProto_Tensor& out) {
    if (type.has_dtype) out.set_elem_type(dtype_to_onnx(type.dtype));
    if (!type.shape) return;
    onnx::TensorShapeProto& shape = *out.mutable_shape();
    for (const DeclaredDim& d : *type.shape) {
        auto* dim = shape.add_dim();
        if (const auto* size = std::get_if<int64_t>(&d)) dim->set_dim_value(*size);
        if (const auto* name = std::get_if<std::string>(&d)) dim->set_dim_param(*name);
    }
}

void write(const GraphInput& value, onnx::ValueInfoProto& out) {
    using Container = DeclaredType::Container;
    out.set_name(value.name);
    const DeclaredType& t = value.type;
    if (!t.has_dtype || t.container == Container::Unsupported) return;
    onnx::TypeProto* type = out.mutable_type();
    if (t.container == Container::Optional || t.container == Container::OptionalSequence)
        type = type->mutable_optional_type()->mutable_elem_type();
    if (t.container == Container::Sequence || t.container == Container::OptionalSequence)
        type = type->mutable_sequence_type()->mutable_elem_type();
    write(t, *type->mutable_tensor_type());
}

void write(const Node& node, onnx::NodeProto& out) {
    out.set_name(node.name);
    out.set_op_type(node.op);
    out.set_domain(node.domain);
    for (const std::string& name : node.inputs) out.add_input(name);
    for (const std::string& name : node.outputs) out.add_output(name);
    for (const auto& [name, value] : node.attributes) {
        onnx::AttributeProto& attribute = *out.add_attribute();
        attribute.set_name(name);
        std::visit(AttributeWriter{attribute}, value);
    }
}

void write(const Graph& graph, onnx::GraphProto& out) {
    out.set_name(graph.name);
    for (const Node& node : graph.nodes) write(node, *out.add_node());
    for (const auto& [name, tensor] : graph.initializers) tensor_to_proto(tensor, name, *out.add_initializer());
    for (const GraphInput& input : graph.inputs) write(input, *out.add_input());
    for (const GraphInput& output : graph.outputs) write(output, *out.add_output());
}

template <class F>
void for_each_subgraph(const Node& node, const F& f) {
    for (const auto& [name, value] : node.attributes)
        if (const auto* graph = std::get_if<std::shared_ptr<const Graph>>(&value)) f(**graph);
}

/// Throws where one domain has nodes of two versions.
void add_opsets(const Graph& graph, std::map<std::string, int64_t>& opsets) {
    for (const Node& node : graph.nodes) {
        const auto [it, fresh] = opsets.try_emplace(node.domain, node.opset);
        if (!fresh && it->second != node.opset)
            model_error("{} cannot be in one file with nodes of opset {}", node.describe(), it->second);
        for_each_subgraph(node, [&](const Graph& inner) { add_opsets(inner, opsets); });
    }
}

/// What a node reads, and what its subgraphs read of the graphs around them.
void add_reads(const Node& node, std::set<std::string>& reads) {
    for (const std::string& name : node.inputs)
        if (!name.empty()) reads.insert(name);
    for_each_subgraph(node, [&](const Graph& inner) {
        std::set<std::string> own, inside;
        for (const GraphInput& input : inner.inputs) own.insert(input.name);
        for (const auto& [name, tensor] : inner.initializers) own.insert(name);
        for (const Node& n : inner.nodes) {
            own.insert(n.outputs.begin(), n.outputs.end());
            add_reads(n, inside);
        }
        for (const GraphInput& output : inner.outputs) inside.insert(output.name);
        std::set_difference(inside.begin(), inside.end(), own.begin(), own.end(), std::inserter(reads, reads.end()));
    });
}

}  // namespace

std::string model_to_bytes(const Model& model) {
    constexpr int64_t kIrVersion = 8;  // the first with everything that a Graph has
    onnx::ModelProto proto;
    proto.set_ir_version(std::max(model.ir_version, kIrVersion));
    proto.set_producer_name(model.producer);
    std::map<std::string, int64_t> opsets;
    add_opsets(model.graph, opsets);
    opsets.insert(model.opsets.begin(), model.opsets.end());
    for (const auto& [domain, version] : opsets) {
        onnx::OperatorSetIdProto& import = *proto.add_opset_import();
        import.set_domain(domain);
        import.set_version(version);
    }
    write(model.graph, *proto.mutable_graph());
    std::string bytes;
    if (proto.ByteSizeLong() > INT32_MAX || !proto.SerializeToString(&bytes))
        throw RuntimeError("cannot write the model: a file of this format holds at most 2 GiB");
    return bytes;
}

Submodel submodel(const Model& model, const std::set<std::string>& nodes, const std::vector<GraphInput>& outputs,
                  const std::map<std::string, DeclaredType>& known) {
    const Graph& all = model.graph;
    std::map<std::string, const Node*> producers;
    for (const Node& n : all.nodes)
        for (const std::string& name : n.outputs) producers[name] = &n;
    Submodel part;
    std::set<const Node*> inside;
    std::set<std::string> seen, pending;
    for (const GraphInput& output : outputs) pending.insert(output.name);
    while (!pending.empty()) {
        const std::string name = *pending.begin();
        pending.erase(pending.begin());
        if (!seen.insert(name).second) continue;
        const auto producer = producers.find(name);
        const bool wanted = producer != producers.end() && nodes.count(producer->second->name) != 0;
        const bool is_output =
            std::any_of(outputs.begin(), outputs.end(), [&](const auto& o) { return o.name == name; });
        if (const auto it = all.initializers.find(name); it != all.initializers.end()) {
            part.model.graph.initializers.insert(*it);
        } else if (const auto type = known.find(name); !wanted && !is_output && type != known.end()) {
            part.inputs.push_back(name);
            part.model.graph.inputs.push_back({name, type->second});
        } else if (producer != producers.end()) {
            if (inside.insert(producer->second).second) add_reads(*producer->second, pending);
        } else {
            model_error("a part of the model needs the tensor {}, whose contents are not known", quoted_name(name));
        }
    }
    part.model.path = "<part of " + model.path + ">";
    part.model.producer = "tilewright";
    part.model.ir_version = model.ir_version;
    part.model.graph.name = "part";
    part.model.graph.outputs = outputs;
    for (const Node& n : all.nodes)
        if (inside.count(&n) != 0) part.model.graph.nodes.push_back(n);
    add_opsets(part.model.graph, part.model.opsets);
    return part;
}

DeclaredType declared_type(const Tensor& tensor) {
    DeclaredType type;
    type.dtype = tensor.dtype();
    type.has_dtype = true;
    type.shape.emplace();
    for (const int64_t d : tensor.shape()) type.shape->emplace_back(d);
    return type;
}

}  // namespace tilewright
