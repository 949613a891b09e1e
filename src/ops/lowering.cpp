#include "ops/lowering.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "graph/import_tensor.h"
#include "opaque/custom.h"
#include "ops/custom.h"
#include "ops/type_constraints.h"

namespace tilewright {

namespace {

/// A node reads a value that an earlier problem left undefined: it is skipped without a message.
struct UnknownValue {};

/// Thrown when lowering with `to_next_split` reaches the next split.
struct AtSplit {};

/// Each split doubles the subsequent program.
constexpr int kMaxNestedSplits = 4;

std::string type_text(DType t, const Dims& shape) { return std::string(to_string(t)) + to_string(shape); }

Expr named(const std::string& name, const LowerOptions& options) {
    const auto fixed = options.dims.find(name);
    return fixed != options.dims.end() ? Expr(fixed->second) : input_dimension(name, options.ranges);
}

/// The sum that a dimension's name writes, as exporters do: "past_sequence_length + sequence_length". Its summands are
/// products of numbers and of `names`. Nothing where the name is none, or a single one.
std::optional<Expr> composed_dim(const std::string& text, const std::set<std::string>& names,
                                 const LowerOptions& options) {
    if (names.count(text) != 0) return std::nullopt;
    Expr sum = 0, product = 1;
    size_t factors = 0;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find_first_of("+*", at), text.size());
        const size_t first = text.find_first_not_of(' ', at), last = text.find_last_not_of(' ', end - 1);
        if (first >= end) return std::nullopt;
        const std::string factor = text.substr(first, last + 1 - first);
        const bool number = factor.size() < 10 && factor.find_first_not_of("0123456789") == std::string::npos;
        if (!number && names.count(factor) == 0) return std::nullopt;
        product = product * (number ? Expr(static_cast<int64_t>(std::stol(factor))) : named(factor, options));
        ++factors;
        if (end + 1 == text.size()) return std::nullopt;
        if (end == text.size() || text[end] == '+') {
            sum = sum + product;
            product = 1;
        }
        at = end + 1;
    }
    return factors > 1 ? std::optional(sum) : std::nullopt;
}

/// A declared dimension as an expression; none if it is undeclared.
std::optional<Expr> declared_dim(const DeclaredDim& d, const LowerOptions& options,
                                 const std::set<std::string>& names = {}) {
    if (const auto* n = std::get_if<int64_t>(&d)) return Expr(*n);
    if (const auto* name = std::get_if<std::string>(&d)) {
        const auto composed = composed_dim(*name, names, options);
        return composed ? *composed : named(*name, options);
    }
    return std::nullopt;
}

/// A number or a name; an undeclared dimension gets a fresh name.
DeclaredDim named_dim(const GraphInput& in, size_t k) {
    const DeclaredDim& d = (*in.type.shape)[k];
    return std::holds_alternative<std::monostate>(d) ? fmt::format("{}_d{}", in.name, k) : d;
}

/// The names of dimensions of inputs.
std::set<std::string> names_of_dims(const std::vector<GraphInput>& inputs) {
    std::set<std::string> names;
    for (const GraphInput& in : inputs)
        for (size_t k = 0; in.type.shape && k < in.type.shape->size(); ++k) {
            const DeclaredDim d = named_dim(in, k);
            if (const auto* name = std::get_if<std::string>(&d);
                name != nullptr && name->find_first_of("+*") == std::string::npos)
                names.insert(*name);
        }
    return names;
}

void check_declared(const GraphInput& in, std::string_view what) {
    const std::string name = fmt::format("{} {}", what, quoted_name(in.name));
    if (in.type.container != DeclaredType::Container::None || !in.type.unsupported.empty())
        throw Unsupported(fmt::format("{} has type {}, and only dense tensors can be passed in", name,
                                      in.type.unsupported.empty() ? "sequence or optional" : in.type.unsupported));
    if (!in.type.has_dtype) model_error("{} declares no element type", name);
    if (!in.type.shape)
        throw ModelError(fmt::format("{} declares no shape: its rank must be known", name),
                         "give the model's inputs a shape when exporting it");
}

/// The message prefixed with the node's description, unless it has one.
std::string described(const Node& node, std::string_view message) {
    if (message.substr(0, 6) == "node '") return std::string(message);
    return node.describe() + ": " + std::string(message);
}

void check_opset(int64_t opset) {
    if (opset > newest_opset())
        throw ModelError(fmt::format("the model imports opset {} of ai.onnx, and operators are known up to opset {}",
                                     opset, newest_opset()),
                         "export it with an older opset, or convert it with onnx.version_converter");
}

std::string why_no_lowering(const Node& node) {
    const std::string domain = node.domain.empty() ? "ai.onnx" : node.domain;
    std::set<int64_t> versions;
    for (const OpLowering& r : op_lowerings())
        if (r.domain == node.domain && r.op == node.op) versions.insert(r.since);
    if (versions.empty()) return fmt::format("operator {} of domain {} is not supported", quoted_name(node.op), domain);
    return fmt::format("operator {} of domain {} is supported from opset {} on", quoted_name(node.op), domain,
                       *versions.begin());
}

}  // namespace

/// One graph (or body) being lowered into a program.
class GraphLowering {
  public:
    struct Settings {
        const LowerOptions& options;
        std::vector<Problem>* problems;
        int splits = 0;              ///< enclosing lower_to_end calls
        bool to_next_split = false;  ///< throw AtSplit at the next split
    };

    /// `outer` is the enclosing graph; `captures` are needed if the body becomes a separate program.
    GraphLowering(const Graph& graph, Builder& builder, const Settings& settings, GraphLowering* outer = nullptr,
                  std::vector<ValueId>* captures = nullptr)
        : graph_(graph), b_(builder), settings_(settings), outer_(outer), captures_(captures) {
        const bool same_program = outer != nullptr && captures == nullptr;
        named_ = same_program ? outer->named_ : std::make_shared<std::unordered_set<ValueId>>();
    }

    const Settings& settings() const { return settings_; }
    Builder& builder() { return b_; }
    bool is_outermost() const { return outer_ == nullptr; }

    ValueId lookup(const std::string& name) {
        if (const auto it = names_.find(name); it != names_.end()) return it->second;
        if (unknown_.count(name) != 0) throw UnknownValue{};
        if (const auto it = graph_.initializers.find(name); it != graph_.initializers.end()) {
            const ValueId v = b_.constant(it->second);
            define(name, v);
            return v;
        }
        if (outer_ == nullptr) model_error("value {} is not defined", quoted_name(name));
        const ValueId outside = outer_->lookup(name);
        if (captures_ == nullptr) return outside;  // a body inlined into the outer program
        const ValueId inside = capture(outside);
        names_.emplace(name, inside);
        return inside;
    }

    void define(const std::string& name, ValueId v) {
        names_.insert_or_assign(name, v);
        if (!named_->insert(v).second) return;  // an Identity: the value already has a name
        if (reserved_.count(name) != 0)
            b_.program().values[v].name = name;
        else
            b_.rename(v, name);
    }

    void add_inputs() {
        for (const GraphInput& out : graph_.outputs) reserved_.insert(out.name);
        const std::set<std::string> names = names_of_dims(graph_.inputs);
        for (const GraphInput& in : graph_.inputs) {
            try {
                check_declared(in, "input");
                Dims shape;
                for (size_t k = 0; k < in.type.shape->size(); ++k)
                    shape.push_back(*declared_dim(named_dim(in, k), settings_.options, names));
                const ValueId v = b_.input(in.name, in.type.dtype, std::move(shape));
                b_.program().values[v].name = in.name;
                names_.emplace(in.name, v);
                named_->insert(v);
            } catch (const ModelError& e) {
                if (settings_.problems == nullptr) throw;
                const bool unsupported = dynamic_cast<const Unsupported*>(&e) != nullptr;
                settings_.problems->push_back({in.name, "", "", 0, "", e.what(), unsupported});
                unknown_.insert(in.name);
            }
        }
    }

    void bind(const std::string& name, ValueId v) {
        names_.emplace(name, v);
        named_->insert(v);
    }

    void lower_nodes() {
        for (position_ = 0; position_ < graph_.nodes.size() && !finished_; ++position_)
            lower_node(graph_.nodes[position_]);
    }

    /// Lowers `branch` in place of the current node, and all subsequent nodes, into this program.
    Graph rest_after(const Graph& branch) {
        Graph rest;
        rest.name = branch.name;
        rest.initializers = branch.initializers;
        rest.nodes = branch.nodes;
        const std::vector<GraphInput>* given = &branch.outputs;
        for (GraphLowering* frame = this;; frame = frame->outer_) {
            const std::vector<Node>& nodes = frame->graph_.nodes;
            const Node& here = nodes[frame->position_];
            for (size_t k = 0; k < here.outputs.size() && k < given->size(); ++k) {
                if (here.outputs[k].empty()) continue;
                Node pass;
                pass.name = here.name;
                pass.op = "Identity";
                pass.opset = here.opset;
                pass.inputs = {(*given)[k].name};
                pass.outputs = {here.outputs[k]};
                rest.nodes.push_back(std::move(pass));
            }
            rest.nodes.insert(rest.nodes.end(), nodes.begin() + static_cast<int64_t>(frame->position_) + 1,
                              nodes.end());
            given = &frame->graph_.outputs;
            if (frame->owns_program()) break;
        }
        for (const std::string& name : lacking_outputs()) rest.outputs.push_back({name, {}});
        return rest;
    }

    /// Outputs of this program's graph that are not defined yet.
    std::vector<std::string> lacking_outputs() {
        GraphLowering& root = program_root();
        std::vector<std::string> out;
        for (const GraphInput& o : root.graph_.outputs)
            if (root.names_.count(o.name) == 0 && root.graph_.initializers.count(o.name) == 0) out.push_back(o.name);
        return out;
    }

    void finish(const std::vector<ValueId>& outputs) {
        const std::vector<std::string> names = lacking_outputs();
        TW_CHECK(names.size() == outputs.size());
        for (size_t k = 0; k < names.size(); ++k) program_root().define(names[k], outputs[k]);
        for (GraphLowering* frame = this;; frame = frame->outer_) {
            frame->finished_ = true;
            if (frame->owns_program()) break;
        }
    }
    bool finished() const { return finished_; }

    /// The graph's outputs as valid program outputs: not inputs or constants, without duplicates.
    std::vector<ValueId> own_outputs(bool keep_names, size_t skip = 0) {
        std::vector<ValueId> out;
        const std::vector<ValueId>& in = b_.program().inputs;
        b_.set_source("", "");
        for (size_t k = skip; k < graph_.outputs.size(); ++k) {
            const GraphInput& o = graph_.outputs[k];
            ValueId v = lookup(o.name);
            const bool shared = b_.contents(v) != nullptr || std::find(in.begin(), in.end(), v) != in.end() ||
                                std::find(out.begin(), out.end(), v) != out.end();
            if (shared) {
                Value& original = b_.program().values[v];
                if (b_.contents(v) != nullptr && original.name == o.name) b_.rename(v, o.name + ".contents");
                v = b_.copy(v, o.name);
            }
            // An output that is an input gives the name to the input, and gets another.
            if (keep_names && !is_input_name(o.name)) b_.program().values[v].name = o.name;
            out.push_back(v);
        }
        return out;
    }

    std::vector<ValueId> plain_outputs() {
        std::vector<ValueId> out;
        for (const GraphInput& o : graph_.outputs) out.push_back(lookup(o.name));
        return out;
    }

  private:
    /// False for a body inlined into the outer program.
    bool owns_program() const { return outer_ == nullptr || captures_ != nullptr; }
    GraphLowering& program_root() {
        GraphLowering* frame = this;
        while (!frame->owns_program()) frame = frame->outer_;
        return *frame;
    }

    bool is_input_name(const std::string& name) const {
        const Program& p = b_.program();
        return std::any_of(p.inputs.begin(), p.inputs.end(), [&](ValueId v) { return p.values[v].name == name; });
    }

    /// Captures a value of the outer program as an input of this one; known contents stay known.
    ValueId capture(ValueId outside) {
        Builder& around = outer_->b_;
        if (const Tensor* t = around.contents(outside)) return b_.constant(*t);
        if (const auto known = around.int_contents(outside))
            return b_.int_values(*known, around.shape(outside), around.dtype(outside));
        const ValueId inside =
            b_.input(around.program().values[outside].name, around.dtype(outside), around.shape(outside));
        captures_->push_back(outside);
        return inside;
    }

    void lower_node(const Node& node) {
        try {
            b_.set_source(node.name, node.op, node.describe());
            NodeContext context(node, b_, *this);
            lower_operator(node, context);
            if (finished_) return;
            for (size_t k = 0; k < node.outputs.size(); ++k)
                if (context.uses_output(k) && names_.count(node.outputs[k]) == 0)
                    throw Unsupported(fmt::format("output {} ({}) is not supported", k, quoted_name(node.outputs[k])));
        } catch (const UnknownValue&) {
            give_up(node);
        } catch (const Unsupported& e) {
            if (settings_.problems == nullptr) throw Unsupported(described(node, e.what()), e.hint());
            record(node, e.what(), true);
        } catch (const ModelError& e) {
            if (settings_.problems == nullptr) throw ModelError(described(node, e.what()), e.hint());
            record(node, e.what(), false);
        }
    }

    void lower_operator(const Node& node, NodeContext& context) {
        const CustomOperators* own = settings_.options.operators.get();
        if (own != nullptr && own->has(node.domain, node.op))
            return lower_custom(context, own->find(node.domain, node.op, node.opset));
        const OpLowering* lowering = find_lowering(node.domain, node.op, node.opset);
        if (lowering == nullptr) throw Unsupported(why_no_lowering(node));
        check_types(node);
        lowering->lower(context);
    }

    void check_types(const Node& node) {
        if (node.domain.empty()) check_opset(node.opset);
        const OperatorSchema* schema = find_schema(node.domain, node.op, node.opset);
        if (schema == nullptr) return;
        std::vector<std::optional<DType>> types;
        for (const std::string& name : node.inputs)
            types.push_back(name.empty() ? std::nullopt : std::optional(b_.dtype(lookup(name))));
        if (const auto problem = type_problem(*schema, types))
            throw ModelError(fmt::format("{}: {}", node.describe(), *problem));
    }

    void record(const Node& node, std::string_view message, bool unsupported) {
        std::string types;
        for (const std::string& name : node.inputs) {
            if (!types.empty()) types += ", ";
            try {
                if (name.empty()) continue;
                const ValueId v = lookup(name);
                types += type_text(b_.dtype(v), b_.shape(v));
            } catch (const ModelError&) {
                types += '?';
            } catch (const UnknownValue&) {
                types += '?';
            }
        }
        Problem p{node.name, node.op, node.domain, node.opset, types, described(node, message), unsupported};
        // A loop's body is lowered again if its shapes change, and an If may fail at a later node: a problem is
        // reported once, with the description of the failing node.
        const auto same = std::find_if(settings_.problems->begin(), settings_.problems->end(),
                                       [&](const Problem& q) { return q.reason == p.reason; });
        if (same != settings_.problems->end())
            *same = std::move(p);
        else
            settings_.problems->push_back(std::move(p));
        give_up(node);
    }

    /// Outputs of a node that could not be lowered: as the file declares them, else unknown.
    void give_up(const Node& node) {
        for (const std::string& name : node.outputs) {
            if (name.empty() || names_.count(name) != 0) continue;
            const auto declared = graph_.value_info.find(name);
            std::optional<Dims> shape;
            if (declared != graph_.value_info.end() && declared->second.has_dtype && declared->second.shape &&
                declared->second.container == DeclaredType::Container::None) {
                shape.emplace();
                for (const DeclaredDim& d : *declared->second.shape) {
                    const auto known = declared_dim(d, settings_.options);
                    if (!known) {
                        shape.reset();
                        break;
                    }
                    shape->push_back(*known);
                }
            }
            if (!shape) {
                unknown_.insert(name);
                continue;
            }
            const ValueId v = b_.program().values.push_back({name, declared->second.dtype, *shape});
            names_.emplace(name, v);
            named_->insert(v);
        }
    }

    const Graph& graph_;
    Builder& b_;
    Settings settings_;
    GraphLowering* outer_;
    std::vector<ValueId>* captures_;
    size_t position_ = 0;  ///< of the current node
    bool finished_ = false;
    std::unordered_map<std::string, ValueId> names_;
    std::unordered_set<std::string> unknown_, reserved_;
    std::shared_ptr<std::unordered_set<ValueId>> named_;  ///< values with an ONNX name, of the whole program
};

// --- NodeContext

ValueId NodeContext::in(size_t i) const {
    if (!has(i)) fail(fmt::format("input {} is missing", i));
    return graph_.lookup(node.inputs[i]);
}

void NodeContext::out(size_t i, ValueId v) {
    if (uses_output(i)) graph_.define(node.outputs[i], v);
}

int64_t NodeContext::axis_attr(std::string_view name, int64_t fallback, size_t rank) const {
    return b.normalize_axis(node.attr_int(std::string(name), fallback), rank);
}

std::optional<DType> NodeContext::dtype_attr(const std::string& name) const {
    const auto it = node.attributes.find(name);
    if (it == node.attributes.end()) return std::nullopt;
    std::optional<DType> t;
    std::string text;
    if (const auto* spelled = std::get_if<std::string>(&it->second)) {
        static const std::map<std::string_view, DType> kNames = {
            {"FLOAT", DType::F32},  {"DOUBLE", DType::F64}, {"FLOAT16", DType::F16}, {"INT8", DType::I8},
            {"INT16", DType::I16},  {"INT32", DType::I32},  {"INT64", DType::I64},   {"UINT8", DType::U8},
            {"UINT16", DType::U16}, {"UINT32", DType::U32}, {"UINT64", DType::U64},  {"BOOL", DType::Bool},
        };
        if (const auto found = kNames.find(*spelled); found != kNames.end()) t = found->second;
        text = quoted_name(*spelled);
    } else {
        const int64_t number = node.attr_int(name, 0);
        const auto code = static_cast<int32_t>(std::clamp<int64_t>(number, -1, INT32_MAX));
        t = import_detail::dtype_from_onnx(code);
        text = import_detail::unsupported_type_name(code);
    }
    if (!t) unsupported(fmt::format("attribute '{}' requests element type {}", name, text));
    return t;
}

std::optional<std::vector<int64_t>> NodeContext::ints(size_t input, const std::string& attribute) const {
    if (!has(input)) {
        if (!node.has(attribute)) return std::nullopt;
        return node.attr_ints(attribute, {});
    }
    const auto known = b.int_contents(in(input));
    std::vector<int64_t> out;
    if (known)
        for (const Expr e : *known)
            if (e.is_constant()) out.push_back(e.constant());
    if (!known || out.size() != known->size())
        unsupported(fmt::format("input {} ({}) must be known before the model runs, and is computed by it",
                                quoted_name(node.inputs[input]), attribute));
    return out;
}

bool NodeContext::is_checked_input(size_t i) const {
    const std::vector<ValueId>& inputs = b.program().inputs;
    return graph_.settings().options.check_inputs && graph_.is_outermost() &&
           std::find(inputs.begin(), inputs.end(), in(i)) != inputs.end();
}

void NodeContext::fail(const std::string& message) const { throw ModelError(node.describe() + ": " + message); }
void NodeContext::unsupported(const std::string& reason) const { throw Unsupported(node.describe() + ": " + reason); }

NodeContext::Body NodeContext::lower_body(const Graph& body, const std::vector<BodyInput>& inputs,
                                          bool drop_known_first) const {
    const auto declared = std::count_if(inputs.begin(), inputs.end(), [](const BodyInput& i) { return i.declared; });
    if (body.inputs.size() != static_cast<size_t>(declared))
        fail(fmt::format("body {} declares {} inputs, and {} are needed", quoted_name(body.name), body.inputs.size(),
                         declared));
    Body result;
    result.program = std::make_shared<Program>();
    result.program->name = node.name + "/" + body.name;
    Builder builder(*result.program, b);
    GraphLowering inner(body, builder, graph_.settings(), &graph_, &result.captures);
    auto names = body.inputs.begin();
    for (const BodyInput& i : inputs) {
        if (!i.declared) {
            builder.input("iteration", i.dtype, i.shape);
            continue;
        }
        const GraphInput& in = *names++;
        ValueId v = i.value ? builder.constant(*i.value, in.name) : builder.input(in.name, i.dtype, i.shape);
        // Scalars that the file declares with one dimension get one.
        if (i.shape.empty() && in.type.shape && in.type.shape->size() == 1) v = builder.reshape(v, {1});
        inner.bind(in.name, v);
    }
    inner.lower_nodes();
    for (const ValueId v : inner.plain_outputs()) {
        const Tensor* t = builder.contents(v);
        result.known.push_back(t != nullptr ? std::optional(*t) : std::nullopt);
    }
    const size_t skip = drop_known_first && !result.known.empty() && result.known[0] ? 1 : 0;
    builder.set_outputs(inner.own_outputs(false, skip));
    return result;
}

std::vector<ValueId> NodeContext::inline_body(const Graph& body, const std::vector<ValueId>& inputs) const {
    if (body.inputs.size() != inputs.size())
        fail(fmt::format("body {} declares {} inputs, and {} are needed", quoted_name(body.name), body.inputs.size(),
                         inputs.size()));
    GraphLowering inner(body, b, graph_.settings(), &graph_);
    for (size_t k = 0; k < inputs.size(); ++k) inner.bind(body.inputs[k].name, inputs[k]);
    inner.lower_nodes();
    if (inner.finished()) return {};
    b.set_source(node.name, node.op, node.describe());
    return inner.plain_outputs();
}

std::optional<NodeContext::Body> NodeContext::lower_to_end(const Graph& branch, bool to_next_split) const {
    GraphLowering::Settings settings = graph_.settings();
    if (settings.to_next_split) throw AtSplit{};
    if (settings.splits == kMaxNestedSplits)
        unsupported(fmt::format("the branches return tensors of different ranks, nested in {} other such nodes",
                                kMaxNestedSplits));
    settings.problems = nullptr;
    settings.to_next_split = to_next_split;
    ++settings.splits;
    const Graph rest = graph_.rest_after(branch);
    Body result;
    result.program = std::make_shared<Program>();
    result.program->name = node.name + "/" + branch.name;
    Builder builder(*result.program, b);
    GraphLowering inner(rest, builder, settings, &graph_, &result.captures);
    try {
        inner.lower_nodes();
        builder.set_outputs(inner.own_outputs(false));
    } catch (const AtSplit&) {
        if (!to_next_split) throw;
        return std::nullopt;
    }
    return result;
}

void NodeContext::finish(const std::vector<ValueId>& outputs) const { graph_.finish(outputs); }

std::shared_ptr<Program> NodeContext::write_body(const std::string& name, const std::function<void(Builder&)>& write) {
    auto program = std::make_shared<Program>();
    program->name = name;
    Builder builder(*program);
    write(builder);
    for (const ValueId v : program->outputs) builder.materialize(v);
    return program;
}

std::vector<std::string> dimension_names(const Model& model) {
    std::vector<std::string> names;
    const std::set<std::string> plain = names_of_dims(model.graph.inputs);
    for (const GraphInput& in : model.graph.inputs) {
        if (!in.type.shape) continue;
        for (size_t k = 0; k < in.type.shape->size(); ++k) {
            const DeclaredDim d = named_dim(in, k);
            const auto* name = std::get_if<std::string>(&d);
            if (name != nullptr && std::find(names.begin(), names.end(), *name) == names.end() &&
                !composed_dim(*name, plain, LowerOptions()))
                names.push_back(*name);
        }
    }
    return names;
}

Program lower(const Model& model, const LowerOptions& options, std::vector<Problem>* problems) {
    if (const auto opset = model.opsets.find(""); opset != model.opsets.end()) check_opset(opset->second);
    Program program;
    program.name = model.graph.name;
    Builder builder(program);
    builder.check_values = options.check_values;
    GraphLowering graph(model.graph, builder, {options, problems});
    graph.add_inputs();
    declare_ranges(program, options.ranges, options.assume_all);
    graph.lower_nodes();
    try {
        builder.set_outputs(graph.own_outputs(true));
    } catch (const UnknownValue&) {
        // The cause is among the problems.
    }
    return program;
}

}  // namespace tilewright
