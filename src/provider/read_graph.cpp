#include "provider/read_graph.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "graph/import_tensor.h"
#include "graph/import_type.h"
#include "provider/order.h"

namespace tilewright::provider {

namespace {

using import_detail::dtype_from_onnx;
using import_detail::tensor_from_raw;
using import_detail::unsupported_type_name;

/// The elements of an attribute with several, or the bytes of its strings.
template <class T>
std::vector<T> elements(const Api& api, const OrtOpAttr* attribute, AttributeKind kind) {
    size_t bytes = 0;
    if (OrtStatus* too_small = api.read_attribute(attribute, static_cast<int>(kind), nullptr, 0, &bytes))
        api.release_status(too_small);
    std::vector<T> out(bytes / sizeof(T));
    if (bytes > 0) api.check(api.read_attribute(attribute, static_cast<int>(kind), out.data(), bytes, &bytes));
    return out;
}

template <class T>
T number(const Api& api, const OrtOpAttr* attribute, AttributeKind kind) {
    T value{};
    size_t bytes = 0;
    api.check(api.read_attribute(attribute, static_cast<int>(kind), &value, sizeof value, &bytes));
    return value;
}

/// Each ends with a zero byte.
std::vector<std::string> strings(const std::vector<char>& bytes) {
    std::vector<std::string> out;
    for (auto at = bytes.begin(); at != bytes.end();) {
        const auto end = std::find(at, bytes.end(), '\0');
        out.emplace_back(at, end);
        at = end == bytes.end() ? end : end + 1;
    }
    return out;
}

DeclaredDim declared_dim(int64_t size, const char* name) {
    if (size >= 0) return size;
    return name != nullptr ? import_detail::named_dim(name) : DeclaredDim();
}

std::optional<Tensor> tensor_of(const Api& api, const OrtValue* value, Constants constants) {
    if (value == nullptr) return std::nullopt;
    auto* info = api.get<OrtTensorTypeAndShapeInfo*>(api.get_tensor_info, value);
    const std::unique_ptr<OrtTensorTypeAndShapeInfo, void (*)(OrtTensorTypeAndShapeInfo*)> release(
        info, api.release_tensor_info);
    const OrtTensorTypeAndShapeInfo* read = info;
    const int type = api.get<int>(api.get_element_type, read);
    if (!dtype_from_onnx(type)) return std::nullopt;
    const Shape shape = api.list(api.get_dimension_count, api.get_dimensions, read);
    const auto* data = api.get<const void*>(api.get_tensor_data, value);
    std::shared_ptr<const void> owner;
    if (constants == Constants::View) owner = std::shared_ptr<const void>(data, [](const void*) {});
    return tensor_from_raw(type, shape, data, std::move(owner));
}

Attribute tensor_attribute(const Api& api, const OrtOpAttr* a) {
    OrtValue* value = nullptr;
    api.check(api.attribute_tensor(a, &value));
    const std::unique_ptr<OrtValue, void (*)(OrtValue*)> release(value, api.release_value);
    std::optional<Tensor> t = tensor_of(api, value, Constants::Copy);
    if (!t)
        model_error("attribute '{}' has elements that are not supported", api.get<const char*>(api.attribute_name, a));
    return std::move(*t);
}

/// Absent for a subgraph.
std::optional<Attribute> value_of(const Api& api, const OrtOpAttr* a) {
    switch (static_cast<AttributeKind>(api.get<int>(api.attribute_type, a))) {
        case AttributeKind::Int:
            return number<int64_t>(api, a, AttributeKind::Int);
        case AttributeKind::Ints:
            return elements<int64_t>(api, a, AttributeKind::Ints);
        case AttributeKind::Float:
            return number<float>(api, a, AttributeKind::Float);
        case AttributeKind::Floats:
            return elements<float>(api, a, AttributeKind::Floats);
        case AttributeKind::String: {
            const std::vector<char> bytes = elements<char>(api, a, AttributeKind::String);
            return std::string(bytes.begin(), bytes.end());
        }
        case AttributeKind::Strings:
            return strings(elements<char>(api, a, AttributeKind::Strings));
        case AttributeKind::Tensor:
            return tensor_attribute(api, a);
        case AttributeKind::Graph:
            return std::nullopt;
    }
    model_error("attribute '{}' has a type that is not supported", api.get<const char*>(api.attribute_name, a));
}

class RegionReader {
  public:
    RegionReader(const Api& api, const OrtGraph* graph, Constants constants) : api_(api), constants_(constants) {
        const auto count = api.get<size_t>(api.graph_opset_count, graph);
        std::vector<const char*> domains(count);
        std::vector<int64_t> versions(count);
        if (count > 0) api.check(api.graph_opsets(graph, domains.data(), versions.data(), count));
        for (size_t i = 0; i < count; ++i) model_.opsets[domain_of(domains[i])] = versions[i];
        model_.ir_version = api.get<int64_t>(api.graph_ir_version, graph);
        model_.path = "<ONNX Runtime>";
        model_.producer = "ONNX Runtime";
    }

    Model read(const Region& region) {
        fill(model_.graph, region);
        for (GraphInput& i : model_.graph.inputs)
            if (i.type.has_dtype && !i.type.shape) i.type.shape.emplace();  // a scalar, whose rank is known
        return std::move(model_);
    }

  private:
    static std::string domain_of(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

    void fill(Graph& out, const Region& region) {
        for (const OrtValueInfo* v : region.inputs) out.inputs.push_back({api_.name(v), declared_type(api_, v)});
        for (const OrtValueInfo* v : region.outputs) {
            add_constant(out, v);
            out.outputs.push_back({api_.name(v), declared_type(api_, v)});
        }
        for (size_t k = 0; k < region.nodes.size(); ++k) out.nodes.push_back(node(out, region.nodes[k], k));
    }

    Node node(Graph& out, const OrtNode* from, size_t position) {
        Node n;
        n.op = api_.get<const char*>(api_.node_operator, from);
        n.domain = domain_of(api_.get<const char*>(api_.node_domain, from));
        n.name = unique_name(api_.get<const char*>(api_.node_name, from), n.op, position);
        const auto imported = model_.opsets.find(n.domain);
        n.opset = imported != model_.opsets.end() ? imported->second : api_.get<int>(api_.node_since_version, from);
        for (const OrtValueInfo* v : api_.list(api_.node_input_count, api_.node_inputs, from)) {
            n.inputs.push_back(v == nullptr ? "" : api_.name(v));
            if (v != nullptr) add_constant(out, v);
        }
        for (const OrtValueInfo* v : api_.list(api_.node_output_count, api_.node_outputs, from))
            n.outputs.push_back(v == nullptr ? "" : api_.name(v));
        for (const OrtOpAttr* a : api_.list(api_.node_attribute_count, api_.node_attributes, from))
            if (std::optional<Attribute> value = value_of(api_, a))
                n.attributes.emplace(api_.get<const char*>(api_.attribute_name, a), std::move(*value));
        add_subgraphs(n, from);
        return n;
    }

    std::string unique_name(const std::string& given, const std::string& op, size_t position) {
        const std::string name = given.empty() ? fmt::format("{}_{}", op, position) : given;
        const int n = ++names_[name];
        return n == 1 ? name : fmt::format("{}#{}", name, n);
    }

    void add_subgraphs(Node& n, const OrtNode* from) {
        const auto count = api_.get<size_t>(api_.node_subgraph_count, from);
        std::vector<const OrtGraph*> graphs(count);
        std::vector<const char*> attributes(count);
        if (count > 0) api_.check(api_.node_subgraphs(from, graphs.data(), count, attributes.data()));
        for (size_t i = 0; i < count; ++i) {
            Region all;
            all.nodes = nodes_of(api_, graphs[i]);
            all.inputs = api_.list(api_.graph_input_count, api_.graph_inputs, graphs[i]);
            all.outputs = api_.list(api_.graph_output_count, api_.graph_outputs, graphs[i]);
            auto body = std::make_shared<Graph>();
            body->name = attributes[i];
            fill(*body, all);
            n.attributes.emplace(attributes[i], std::shared_ptr<const Graph>(std::move(body)));
        }
    }

    /// Those of enclosing graphs are the model's.
    void add_constant(Graph& graph, const OrtValueInfo* v) {
        if (!api_.get<bool>(api_.value_is_constant_initializer, v)) return;
        Graph& owner = api_.get<bool>(api_.value_is_from_outer_scope, v) ? model_.graph : graph;
        const std::string name = api_.name(v);
        if (owner.initializers.count(name) != 0) return;
        if (std::optional<Tensor> t = tensor_of(api_, api_.get<const OrtValue*>(api_.value_initializer, v), constants_))
            owner.initializers.emplace(name, std::move(*t));
    }

    const Api& api_;
    Constants constants_;
    Model model_;
    std::map<std::string, int> names_;
};

}  // namespace

std::vector<const OrtNode*> nodes_of(const Api& api, const OrtGraph* graph) {
    const std::vector<const OrtNode*> nodes = api.list(api.graph_node_count, api.graph_nodes, graph);
    std::map<std::string, size_t> writer;
    std::vector<size_t> ids;
    for (size_t i = 0; i < nodes.size(); ++i) {
        ids.push_back(api.get<size_t>(api.node_id, nodes[i]));
        for (const OrtValueInfo* v : api.list(api.node_output_count, api.node_outputs, nodes[i]))
            if (v != nullptr) writer[api.name(v)] = i;
    }
    std::vector<std::vector<size_t>> producers(nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i) {
        const auto add = [&](const std::vector<const OrtValueInfo*>& reads) {
            for (const OrtValueInfo* v : reads)
                if (const auto w = v == nullptr ? writer.end() : writer.find(api.name(v)); w != writer.end())
                    producers[i].push_back(w->second);
        };
        add(api.list(api.node_input_count, api.node_inputs, nodes[i]));
        add(api.list(api.node_implicit_input_count, api.node_implicit_inputs, nodes[i]));
    }
    std::vector<const OrtNode*> out;
    for (const size_t i : topological_order(producers, ids)) out.push_back(nodes[i]);
    if (out.size() != nodes.size()) throw ApiError("a graph has a cycle");
    return out;
}

DeclaredType declared_type(const Api& api, const OrtValueInfo* value) {
    DeclaredType out;
    const auto* type = api.get<const OrtTypeInfo*>(api.value_type, value);
    if (type == nullptr) return out;
    if (api.get<int>(api.get_onnx_type, type) != kTensorType) {
        out.container = DeclaredType::Container::Unsupported;
        out.unsupported = "a value that is no tensor";
        return out;
    }
    const auto* info = api.get<const OrtTensorTypeAndShapeInfo*>(api.cast_to_tensor_info, type);
    const int element = api.get<int>(api.get_element_type, info);
    const std::optional<DType> dtype = dtype_from_onnx(element);
    if (!dtype && element != 0) {
        out.container = DeclaredType::Container::Unsupported;
        out.unsupported = unsupported_type_name(element);
        return out;
    }
    out.has_dtype = dtype.has_value();
    if (dtype) out.dtype = *dtype;
    const std::vector<int64_t> dims = api.list(api.get_dimension_count, api.get_dimensions, info);
    const bool known = api.has_shape != nullptr ? api.has_shape(info)
                                                : !dims.empty() || api.get<bool>(api.value_is_required_input, value);
    if (!known) return out;
    std::vector<const char*> names(dims.size());
    if (!dims.empty()) api.check(api.get_symbolic_dimensions(info, names.data(), names.size()));
    out.shape.emplace();
    for (size_t d = 0; d < dims.size(); ++d) out.shape->push_back(declared_dim(dims[d], names[d]));
    return out;
}

std::optional<Attribute> attribute_of(const Api& api, const OrtNode* node, std::string_view name) {
    for (const OrtOpAttr* a : api.list(api.node_attribute_count, api.node_attributes, node))
        if (api.get<const char*>(api.attribute_name, a) == name) return value_of(api, a);
    return std::nullopt;
}

Model read_region(const Api& api, const OrtGraph* graph, const Region& region, Constants constants) {
    return RegionReader(api, graph, constants).read(region);
}

}  // namespace tilewright::provider
