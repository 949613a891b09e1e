#include "graph/import_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "base/error.h"
#include "graph/import_names.h"
#include "graph/import_sort.h"
#include "graph/import_type.h"
#include "onnx/onnx_pb.h"

namespace tilewright::import_detail {

namespace {

/// A function of the model, or of a library.
struct Function {
    onnx::FunctionProto* proto = nullptr;
    ReadFile* file = nullptr;
    std::string title;  // "'domain.Name'", for messages; of a library also "of 'library.onnx'"
    std::map<std::string, int64_t> opsets;
    std::map<std::string, onnx::AttributeProto> defaults;
};

using FunctionKey = std::tuple<std::string, std::string, std::string>;  // domain, name, overload

struct Call;

/// The definition of a name in the file.
struct Definition {
    std::string name;                       // in the result; empty for an optional input that a call omits
    std::string unsupported;                // the type of a constant that Tensor does not support
    const char* kind = "";                  // "a graph input", "an initialiser"; of a node's output:
    const onnx::NodeProto* node = nullptr;  // the node that defines it
};

/// The names of one graph or function body.
struct Scope {
    const Scope* outer = nullptr;  // the enclosing graph; null for the main graph and for function bodies
    const Call* call = nullptr;    // the call being expanded; null outside of functions
    std::unordered_map<std::string, Definition> names;

    const Definition* find(const std::string& name) const {
        for (const Scope* s = this; s != nullptr; s = s->outer)
            if (const auto it = s->names.find(name); it != s->names.end()) return &it->second;
        return nullptr;
    }
};

/// One expansion of a function.
struct Call {
    Function* function = nullptr;
    const Scope* caller = nullptr;
    std::string prefix;  // of names in the expanded body
    std::map<std::string, onnx::AttributeProto*> attributes;
};

/// A string field that is newer than the protobuf classes in use.
std::string unknown_string(const google::protobuf::UnknownFieldSet& unknown, int field) {
    std::string value;
    for (int i = 0; i < unknown.field_count(); ++i) {
        const auto& f = unknown.field(i);
        if (f.number() == field && f.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED)
            value = f.length_delimited();
    }
    return value;
}

constexpr int kNodeOverload = 8;
constexpr int kFunctionAttributeProto = 11;
constexpr int kFunctionOverload = 13;

class Converter {
  public:
    Converter(ReadFile& model, std::vector<ReadFile>& libraries, Budget& budget)
        : file_(model), model_(model.proto), budget_(budget) {
        for (auto& f : *model_.mutable_functions()) add_function(f, file_);
        for (ReadFile& library : libraries)
            for (auto& f : *library.proto.mutable_functions()) add_function(f, library);
        reserve_node_names(*model_.mutable_graph());
    }

    Graph main_graph(std::vector<NamedInitializer> initializers) {
        for (const NamedInitializer& i : initializers) main_initializers_.push_back(i.name);
        return graph(*model_.mutable_graph(), std::move(initializers), Scope(), 0);
    }

  private:
    // ---- preparation

    void add_function(onnx::FunctionProto& proto, ReadFile& file) {
        Function f;
        f.proto = &proto;
        f.file = &file;
        const std::string domain = normalised_domain(proto.domain());
        f.title = quoted_name(domain.empty() ? proto.name() : domain + "." + proto.name());
        if (&file != &file_) {
            f.title += " of " + quoted_name(file.name);
            f.opsets = file.opsets;
        }
        for (const auto& import : proto.opset_import()) f.opsets[normalised_domain(import.domain())] = import.version();
        const google::protobuf::UnknownFieldSet& unknown = proto.unknown_fields();
        for (int i = 0; i < unknown.field_count(); ++i) {
            const auto& field = unknown.field(i);
            if (field.number() != kFunctionAttributeProto ||
                field.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED)
                continue;
            onnx::AttributeProto attribute;
            if (!attribute.ParsePartialFromString(field.length_delimited()))
                model_error("an attribute of function {} is damaged", f.title);
            f.defaults[attribute.name()] = std::move(attribute);
        }
        const FunctionKey key{domain, proto.name(), unknown_string(unknown, kFunctionOverload)};
        const auto [it, is_new] = functions_.emplace(key, f);
        if (is_new || (it->second.file == &file_ && &file != &file_)) return;  // the model's own function precedes
        if (it->second.file == &file) model_error("function {} is defined twice", f.title);
        model_error("function {} is defined by {} too", f.title, quoted_name(it->second.file->name));
    }

    void reserve_node_names(const onnx::GraphProto& g) {
        for (const auto& node : g.node()) {
            node_names_.reserve(node.name());
            for (const auto& attribute : node.attribute()) {
                if (attribute.has_g()) reserve_node_names(attribute.g());
            }
        }
    }

    /// Generated value names must differ from every name of the file. Computed lazily, as most files need none.
    void reserve_value_names(const onnx::GraphProto& g) {
        for (const auto& input : g.input()) value_names_.reserve(input.name());
        for (const auto& tensor : g.initializer()) value_names_.reserve(tensor.name());
        for (const auto& tensor : g.sparse_initializer()) value_names_.reserve(tensor.values().name());
        for (const auto& node : g.node()) {
            for (const auto& output : node.output()) value_names_.reserve(output);
            for (const auto& attribute : node.attribute())
                if (attribute.has_g()) reserve_value_names(attribute.g());
        }
    }

    std::string unique_value_name(const std::string& base) {
        if (!value_names_reserved_) {
            value_names_reserved_ = true;
            for (const std::string& name : main_initializers_) value_names_.reserve(name);
            reserve_value_names(model_.graph());
        }
        std::string name = value_names_.make(base);
        budget_.charge_expansion(name.size() + sizeof(Definition));
        return name;
    }

    // ---- graphs

    Graph graph(onnx::GraphProto& proto, std::vector<NamedInitializer> initializers, Scope scope, int depth) {
        Graph g;
        g.name = proto.name();
        for (auto& t : *proto.mutable_initializer())
            initializers.push_back(
                {t.name(), tensor(t, scope, [&] { return "initialiser " + quoted_name(t.name()); })});
        for (auto& t : *proto.mutable_sparse_initializer())
            initializers.push_back({t.values().name(), tensors(scope).read_sparse(t, [&] {
                                        return "sparse initialiser " + quoted_name(t.values().name());
                                    })});
        for (NamedInitializer& i : initializers) {
            const Definition& d = define(scope, i.name, {"", i.tensor.unsupported, "an initialiser", nullptr});
            if (d.unsupported.empty()) g.initializers.emplace(d.name, std::move(i.tensor.value));
        }
        define_inputs(proto, scope, depth, g);
        for (const auto& node : proto.node()) define_outputs(node, scope, {});
        for (int i = 0; i < proto.node_size(); ++i) node(*proto.mutable_node(i), i, scope, depth, g.nodes);
        for (const auto& output : proto.output()) g.outputs.push_back(graph_output(output, scope));
        if (depth == 0 && g.outputs.empty()) model_error("the graph declares no outputs");
        for (const auto& value : proto.value_info()) {
            const auto it = scope.names.find(value.name());
            if (it != scope.names.end() && it->second.node != nullptr)
                g.value_info[it->second.name] = convert_type(value);
        }
        if (expanding_ > 0) charge_copy(g);
        sort_topologically(g);
        return g;
    }

    /// Inputs that are initialisers too are omitted. A subgraph's inputs are bound by position: only old files may have
    /// initialisers among them, after all other inputs.
    void define_inputs(const onnx::GraphProto& proto, Scope& scope, int depth, Graph& g) {
        constexpr int64_t kFirstWithoutListing = 4;
        bool left_out = false;
        for (const auto& input : proto.input()) {
            const auto it = scope.names.find(input.name());
            if (it != scope.names.end() && it->second.kind == std::string_view("an initialiser")) {
                if (depth > 0 && model_.ir_version() >= kFirstWithoutListing)
                    model_error("subgraph {}: its input {} is an initialiser too", quoted_name(proto.name()),
                                quoted_name(input.name()));
                left_out = true;
                continue;
            }
            if (depth > 0 && left_out)
                model_error("subgraph {}: its input {} comes after initialisers", quoted_name(proto.name()),
                            quoted_name(input.name()));
            DeclaredType type = convert_type(input);
            if (depth == 0 && !type.has_dtype && type.container == DeclaredType::Container::None)
                model_error("graph input {} declares no element type", quoted_name(input.name()));
            g.inputs.push_back({define(scope, input.name(), {"", "", "a graph input", nullptr}).name, std::move(type)});
        }
    }

    GraphInput graph_output(const onnx::ValueInfoProto& output, const Scope& scope) {
        const Definition* d = output.name().empty() ? nullptr : scope.find(output.name());
        if (d == nullptr)
            model_error("graph output {} is defined by no node, input or initialiser", quoted_name(output.name()));
        if (!d->unsupported.empty())
            model_error("graph output {} is a constant of type {}, which is not supported", quoted_name(output.name()),
                        d->unsupported);
        return {d->name, convert_type(output)};
    }

    static std::string describe_definer(const Definition& d) {
        if (d.node == nullptr) return d.kind;
        if (d.node->name().empty()) return fmt::format("a node without a name ({})", quoted_name(d.node->op_type()));
        return fmt::format("node {} ({})", quoted_name(d.node->name()), quoted_name(d.node->op_type()));
    }

    const Definition& define(Scope& scope, const std::string& name, Definition definition) {
        if (name.empty()) model_error("{} has an empty name", describe_definer(definition));
        const auto [it, is_new] = scope.names.try_emplace(name);
        if (!is_new)
            model_error("tensor {} is defined twice: by {} and by {}", quoted_name(name), describe_definer(it->second),
                        describe_definer(definition));
        if (definition.name.empty()) definition.name = result_name(scope, name);
        it->second = std::move(definition);
        return it->second;
    }

    /// Names are kept, unless they would shadow a name of an enclosing graph, or belong to a function's body.
    std::string result_name(const Scope& scope, const std::string& name) {
        if (scope.call != nullptr) return unique_value_name(scope.call->prefix + "/" + name);
        if (scope.outer != nullptr && scope.outer->find(name) != nullptr) return unique_value_name(name);
        return name;
    }

    /// `given`: result names that are already fixed (a call's outputs in the caller).
    void define_outputs(const onnx::NodeProto& node, Scope& scope, const std::map<std::string, std::string>& given) {
        for (const std::string& output : node.output()) {
            if (output.empty()) continue;
            const auto it = given.find(output);
            define(scope, output, {it != given.end() ? it->second : "", unsupported_constant(node), "", &node});
        }
    }

    static std::string unsupported_constant(const onnx::NodeProto& node) {
        if (node.op_type() != "Constant" || !normalised_domain(node.domain()).empty()) return "";
        for (const auto& a : node.attribute()) {
            const bool sparse = a.name() == "sparse_value" && a.has_sparse_tensor();
            if (!sparse && !(a.name() == "value" && a.has_t())) continue;
            const int32_t type = sparse ? a.sparse_tensor().values().data_type() : a.t().data_type();
            if (!dtype_from_onnx(type)) return unsupported_type_name(type);
        }
        return "";
    }

    // ---- nodes

    static std::string where(const Node& n, const Scope& scope) {
        if (scope.call == nullptr) return n.describe();
        return fmt::format("{} in function {}", n.describe(), scope.call->function->title);
    }

    int64_t opset_of(const std::string& domain, const Scope& scope) const {
        if (scope.call != nullptr) {
            const auto& own = scope.call->function->opsets;
            if (const auto it = own.find(domain); it != own.end()) return it->second;
        }
        const auto it = file_.opsets.find(domain);
        return it != file_.opsets.end() ? it->second : 0;
    }

    void node(onnx::NodeProto& proto, int position, const Scope& scope, int depth, std::vector<Node>& out) {
        budget_.charge_node();
        Node n;
        n.op = proto.op_type();
        n.domain = normalised_domain(proto.domain());
        n.opset = opset_of(n.domain, scope);
        n.name = node_name(proto, position, scope);
        if (n.op.empty()) model_error("node {} at position {} has no operator", quoted_name(n.name), position);

        if (Function* f = find_function(proto, n)) return inline_call(proto, n, *f, scope, depth, out);
        if (n.opset <= 0)
            model_error("{} uses the operator set {}, which the model does not import", where(n, scope),
                        n.domain.empty() ? "'ai.onnx'" : quoted_name(n.domain));
        if (!unsupported_constant(proto).empty()) return;  // reported by the node that reads it

        for (const std::string& input : proto.input()) {
            const Definition d = resolve(input, n, scope);
            if (!d.unsupported.empty())
                model_error("{} reads {}, a constant of type {}, which is not supported", where(n, scope),
                            quoted_name(input), d.unsupported);
            n.inputs.push_back(d.name);
        }
        for (const std::string& output : proto.output())
            n.outputs.push_back(output.empty() ? "" : scope.names.at(output).name);
        for (auto& a : *proto.mutable_attribute()) {
            if (a.name().empty()) model_error("{} has an attribute without a name", where(n, scope));
            if (n.has(a.name())) model_error("{} has the attribute {} twice", where(n, scope), quoted_name(a.name()));
            if (auto value = attribute(a, n, scope, depth)) n.attributes.emplace(a.name(), std::move(*value));
        }
        if (expanding_ > 0) charge_copy(n);
        out.push_back(std::move(n));
    }

    Function* find_function(const onnx::NodeProto& proto, const Node& n) {
        if (functions_.empty()) return nullptr;
        const auto it = functions_.find({n.domain, n.op, unknown_string(proto.unknown_fields(), kNodeOverload)});
        return it != functions_.end() ? &it->second : nullptr;
    }

    std::string node_name(const onnx::NodeProto& proto, int position, const Scope& scope) {
        if (proto.name().empty() || scope.call != nullptr) {
            std::string base = proto.name().empty() ? fmt::format("{}_{}", proto.op_type(), position) : proto.name();
            return node_names_.make(scope.call != nullptr ? scope.call->prefix + "/" + base : base);
        }
        return node_names_.claim(proto.name());
    }

    /// The definition of an input's name; an empty name is a missing optional input.
    Definition resolve(const std::string& name, const Node& n, const Scope& scope) {
        if (name.empty()) return {};
        const Definition* d = scope.find(name);
        if (d == nullptr)
            model_error("{} reads {}, which no node, input or initialiser defines", where(n, scope), quoted_name(name));
        return *d;
    }

    /// Charges the content of a graph besides its nodes: the file holds it once, but the model holds it several times.
    void charge_copy(const Graph& g) {
        uint64_t bytes = sizeof(Graph) + g.name.size() + g.initializers.size() * sizeof(NamedInitializer);
        const auto add = [&](const std::string& name, const DeclaredType& type) {
            bytes += sizeof(GraphInput) + name.size();
            if (type.shape) bytes += type.shape->size() * sizeof(DeclaredDim);
        };
        for (const GraphInput& i : g.inputs) add(i.name, i.type);
        for (const GraphInput& o : g.outputs) add(o.name, o.type);
        for (const auto& [name, type] : g.value_info) add(name, type);
        budget_.charge_expansion(bytes);
    }

    /// Charges the content of a node.
    void charge_copy(const Node& n) {
        uint64_t bytes = sizeof(Node) + n.name.size() + n.op.size() + n.domain.size();
        for (const std::string& s : n.inputs) bytes += sizeof(std::string) + s.size();
        for (const std::string& s : n.outputs) bytes += sizeof(std::string) + s.size();
        for (const auto& [name, value] : n.attributes) {
            bytes += 2 * sizeof(Attribute) + name.size();
            if (const auto* s = std::get_if<std::string>(&value)) bytes += s->size();
            if (const auto* v = std::get_if<std::vector<int64_t>>(&value)) bytes += v->size() * sizeof(int64_t);
            if (const auto* v = std::get_if<std::vector<float>>(&value)) bytes += v->size() * sizeof(float);
            if (const auto* v = std::get_if<std::vector<Tensor>>(&value)) bytes += v->size() * sizeof(Tensor);
            if (const auto* v = std::get_if<std::vector<std::string>>(&value))
                for (const std::string& s : *v) bytes += sizeof(std::string) + s.size();
        }
        budget_.charge_expansion(bytes);
    }

    // ---- attributes

    /// Absent if it refers to an attribute of the function that neither the call nor the function's defaults define.
    std::optional<Attribute> attribute(onnx::AttributeProto& a, const Node& n, const Scope& scope, int depth) {
        if (!a.ref_attr_name().empty()) return referred_attribute(a, n, scope, depth);
        const auto describe = [&] { return fmt::format("attribute {} of {}", quoted_name(a.name()), where(n, scope)); };
        switch (attribute_type(a)) {
            case onnx::AttributeProto::INT:
                return a.i();
            case onnx::AttributeProto::FLOAT:
                return a.f();
            case onnx::AttributeProto::STRING:
                return a.s();
            case onnx::AttributeProto::INTS:
                return std::vector<int64_t>(a.ints().begin(), a.ints().end());
            case onnx::AttributeProto::FLOATS:
                return std::vector<float>(a.floats().begin(), a.floats().end());
            case onnx::AttributeProto::STRINGS:
                return std::vector<std::string>(a.strings().begin(), a.strings().end());
            case onnx::AttributeProto::TENSOR:
                return supported(tensor(*a.mutable_t(), scope, describe), describe);
            case onnx::AttributeProto::SPARSE_TENSOR:
                return supported(tensors(scope).read_sparse(*a.mutable_sparse_tensor(), describe), describe);
            case onnx::AttributeProto::TENSORS: {
                std::vector<Tensor> items;
                for (auto& t : *a.mutable_tensors()) items.push_back(supported(tensor(t, scope, describe), describe));
                return items;
            }
            case onnx::AttributeProto::GRAPH: {
                if (depth >= budget_.limits().max_subgraph_depth)
                    model_error("{} nests subgraphs more than {} deep", where(n, scope),
                                budget_.limits().max_subgraph_depth);
                return std::make_shared<const Graph>(
                    graph(*a.mutable_g(), {}, Scope{&scope, scope.call, {}}, depth + 1));
            }
            default:
                model_error("{} holds a value of a kind that is not supported ({})", describe(),
                            onnx::AttributeProto::AttributeType_Name(attribute_type(a)));
        }
    }

    /// Files older than IR version 2 do not declare which of the fields is the value.
    static onnx::AttributeProto::AttributeType attribute_type(const onnx::AttributeProto& a) {
        if (a.type() != onnx::AttributeProto::UNDEFINED) return a.type();
        if (a.has_i()) return onnx::AttributeProto::INT;
        if (a.has_f()) return onnx::AttributeProto::FLOAT;
        if (a.has_s()) return onnx::AttributeProto::STRING;
        if (a.has_t()) return onnx::AttributeProto::TENSOR;
        if (a.has_g()) return onnx::AttributeProto::GRAPH;
        if (a.ints_size() > 0) return onnx::AttributeProto::INTS;
        if (a.floats_size() > 0) return onnx::AttributeProto::FLOATS;
        if (a.strings_size() > 0) return onnx::AttributeProto::STRINGS;
        if (a.tensors_size() > 0) return onnx::AttributeProto::TENSORS;
        return onnx::AttributeProto::UNDEFINED;
    }

    /// The value is resolved in the caller's scope: a graph that is passed to a function refers to the caller's names.
    std::optional<Attribute> referred_attribute(onnx::AttributeProto& a, const Node& n, const Scope& scope, int depth) {
        if (scope.call == nullptr)
            model_error("{}: attribute {} refers to {} of a function, outside of any", n.describe(),
                        quoted_name(a.name()), quoted_name(a.ref_attr_name()));
        const Call& call = *scope.call;
        if (const auto given = call.attributes.find(a.ref_attr_name()); given != call.attributes.end())
            return attribute(*given->second, n, *call.caller, depth);
        const auto fallback = call.function->defaults.find(a.ref_attr_name());
        if (fallback == call.function->defaults.end()) return std::nullopt;
        return attribute(fallback->second, n, scope, depth);
    }

    static Tensor supported(ImportedTensor t, const TensorReader::Describe& describe) {
        if (!t.unsupported.empty())
            model_error("{} is a tensor of type {}, which is not supported", describe(), t.unsupported);
        return std::move(t.value);
    }

    /// Inside an expansion the next call may need the tensor again: it is read once and shared.
    ImportedTensor tensor(onnx::TensorProto& t, const Scope& scope, const TensorReader::Describe& describe) {
        if (expanding_ == 0) return tensors(scope).read(t, nullptr, true, describe);
        const auto it = shared_tensors_.find(&t);
        if (it != shared_tensors_.end()) return it->second;
        return shared_tensors_[&t] = tensors(scope).read(t, nullptr, false, describe);
    }

    /// The reader of the file that has the text of this scope.
    TensorReader& tensors(const Scope& scope) const {
        return scope.call != nullptr ? scope.call->function->file->tensors : file_.tensors;
    }

    // ---- functions

    void inline_call(onnx::NodeProto& proto, const Node& n, Function& f, const Scope& scope, int depth,
                     std::vector<Node>& out) {
        for (const Call* c = scope.call; c != nullptr; c = c->caller->call)
            if (c->function == &f) model_error("function {} calls itself, by {}", f.title, where(n, scope));
        if (depth >= budget_.limits().max_subgraph_depth)
            model_error("{} nests function calls more than {} deep", where(n, scope),
                        budget_.limits().max_subgraph_depth);
        if (proto.input_size() > f.proto->input_size() || proto.output_size() > f.proto->output_size())
            model_error("{} has {} inputs and {} outputs, and function {} has {} and {}", where(n, scope),
                        proto.input_size(), proto.output_size(), f.title, f.proto->input_size(),
                        f.proto->output_size());

        budget_.charge_expansion(
            32 * static_cast<uint64_t>(f.proto->input_size() + f.proto->output_size() + proto.attribute_size()));
        Call call{&f, &scope, n.name, {}};
        for (auto& a : *proto.mutable_attribute())
            if (!call.attributes.emplace(a.name(), &a).second)
                model_error("{} has the attribute {} twice", where(n, scope), quoted_name(a.name()));
        Scope body{nullptr, &call, {}};
        for (int i = 0; i < f.proto->input_size(); ++i) {
            Definition d = resolve(i < proto.input_size() ? proto.input(i) : "", n, scope);
            d.kind = "a function input";
            d.node = nullptr;
            if (!body.names.emplace(f.proto->input(i), std::move(d)).second)
                model_error("function {} has the input {} twice", f.title, quoted_name(f.proto->input(i)));
        }

        // The names of the body's outputs in the caller. An input that is also an output, or an output with two names,
        // is copied.
        std::map<std::string, std::string> given;
        std::vector<std::pair<std::string, std::string>> copies;
        for (int i = 0; i < proto.output_size(); ++i) {
            if (proto.output(i).empty()) continue;
            const std::string& inside = f.proto->output(i);
            const std::string& outside = scope.names.at(proto.output(i)).name;
            if (body.names.count(inside) != 0 || !given.emplace(inside, outside).second)
                copies.emplace_back(inside, outside);
        }
        for (const auto& inner : f.proto->node()) define_outputs(inner, body, given);
        for (int i = 0; i < f.proto->output_size(); ++i) {
            const std::string& output = f.proto->output(i);
            const auto it = body.names.find(output);
            if (it == body.names.end())
                model_error("function {} does not define its output {}", f.title, quoted_name(output));
            const bool used = i < proto.output_size() && !proto.output(i).empty();
            if (used && !it->second.unsupported.empty())
                model_error("function {} returns {}, a constant of type {}, which is not supported", f.title,
                            quoted_name(output), it->second.unsupported);
        }

        ++expanding_;
        for (int i = 0; i < f.proto->node_size(); ++i) node(*f.proto->mutable_node(i), i, body, depth + 1, out);
        for (const auto& [inside, outside] : copies) copy_value(inside, outside, n, body, out);
        --expanding_;
    }

    void copy_value(const std::string& from, const std::string& to, const Node& call, const Scope& body,
                    std::vector<Node>& out) {
        Node copy;
        copy.op = "Identity";
        copy.opset = std::max<int64_t>(opset_of("", body), 1);
        copy.name = node_names_.make(call.name + "/Identity");
        copy.inputs = {resolve(from, copy, body).name};
        if (copy.inputs[0].empty())
            model_error("{} leaves out {}, which the function returns", call.describe(), quoted_name(from));
        copy.outputs = {to};
        budget_.charge_node();
        charge_copy(copy);
        out.push_back(std::move(copy));
    }

    ReadFile& file_;  // of the model
    onnx::ModelProto& model_;
    Budget& budget_;
    std::map<FunctionKey, Function> functions_;
    std::vector<std::string> main_initializers_;
    NameTable node_names_;
    NameTable value_names_;
    bool value_names_reserved_ = false;
    int expanding_ = 0;  // calls being expanded
    std::unordered_map<const onnx::TensorProto*, ImportedTensor> shared_tensors_;
};

}  // namespace

std::string normalised_domain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

Graph convert_main_graph(ReadFile& model, std::vector<NamedInitializer> initializers, std::vector<ReadFile>& libraries,
                         Budget& budget) {
    return Converter(model, libraries, budget).main_graph(std::move(initializers));
}

}  // namespace tilewright::import_detail
