// Graph -> text, for golden tests and `dump`.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "graph/graph.h"

namespace tilewright {

namespace {

constexpr int64_t kInlineElements = 8;

/// Names are printed without quotes if they contain none of the format's own punctuation.
std::string name_text(const std::string& name) {
    if (name.empty()) return "_";
    const auto plain = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::strchr("_./:-+", c) != nullptr;
    };
    const bool bare =
        name != "_" && name.find('\0') == std::string::npos && std::all_of(name.begin(), name.end(), plain);
    return bare ? name : quoted_name(name, name.size());
}

uint64_t content_hash(const Tensor& t) {
    const auto* bytes = static_cast<const unsigned char*>(t.data());
    const size_t size = t.bytes();
    uint64_t h = size;
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        uint64_t word = 0;
        std::memcpy(&word, bytes + i, 8);
        h = hash_combine(h, word);
    }
    uint64_t tail = 0;
    if (size > i) std::memcpy(&tail, bytes + i, size - i);
    return hash_combine(h, tail);
}

/// f32[2] {0.5, 2}, or f32[64, 3, 7, 7] #0123456789abcdef for long tensors.
std::string tensor_text(const Tensor& t) {
    std::string out = fmt::format("{}{}", to_string(t.dtype()), to_string(t.shape()));
    if (t.count() > kInlineElements) return out + fmt::format(" #{:016x}", content_hash(t));
    std::vector<std::string> elements;
    for (int64_t i = 0; i < t.count(); ++i) {
        if (t.dtype() == DType::U64) {
            elements.push_back(fmt::format("{}", static_cast<uint64_t>(t.get_int(i))));
        } else if (is_float(t.dtype())) {
            elements.push_back(t.dtype() == DType::F64 ? fmt::format("{}", t.get(i))
                                                       : fmt::format("{}", static_cast<float>(t.get(i))));
        } else {
            elements.push_back(fmt::format("{}", t.get_int(i)));
        }
    }
    return out + fmt::format(" {{{}}}", fmt::join(elements, ", "));
}

std::string dim_text(const DeclaredDim& dim) {
    if (const auto* number = std::get_if<int64_t>(&dim)) return fmt::format("{}", *number);
    if (const auto* symbol = std::get_if<std::string>(&dim)) return name_text(*symbol);
    return "?";
}

template <class T, class F>
std::string list_text(const std::vector<T>& items, F&& text) {
    std::vector<std::string> texts;
    std::transform(items.begin(), items.end(), std::back_inserter(texts), text);
    return fmt::format("{}", fmt::join(texts, ", "));
}

std::string type_text(const DeclaredType& type) {
    if (type.container == DeclaredType::Container::Unsupported) return fmt::format("unsupported({})", type.unsupported);
    std::string out = type.has_dtype ? std::string(to_string(type.dtype)) : "?";
    if (type.shape) {
        out += fmt::format("[{}]", list_text(*type.shape, dim_text));
    } else {
        out += "[...]";
    }
    switch (type.container) {
        case DeclaredType::Container::Sequence:
            return fmt::format("sequence({})", out);
        case DeclaredType::Container::Optional:
            return fmt::format("optional({})", out);
        case DeclaredType::Container::OptionalSequence:
            return fmt::format("optional(sequence({}))", out);
        default:
            return out;
    }
}

std::string names_text(const std::vector<std::string>& names) {
    return fmt::format("({})", list_text(names, name_text));
}

/// A float always has a decimal point or exponent: 1 -> 1.0.
std::string float_text(float v) {
    std::string s = fmt::format("{}", v);
    return s.find_first_of(".en") == std::string::npos ? s + ".0" : s;
}

std::string string_text(const std::string& s) { return quoted_name(s, s.size()); }

std::string attribute_text(const Attribute& a) {
    struct Visitor {
        std::string operator()(int64_t v) const { return fmt::format("{}", v); }
        std::string operator()(float v) const { return float_text(v); }
        std::string operator()(const std::string& v) const { return string_text(v); }
        std::string operator()(const Tensor& v) const { return tensor_text(v); }
        std::string operator()(const std::vector<int64_t>& v) const { return fmt::format("[{}]", fmt::join(v, ", ")); }
        std::string operator()(const std::vector<float>& v) const {
            return fmt::format("[{}]", list_text(v, float_text));
        }
        std::string operator()(const std::vector<std::string>& v) const {
            return fmt::format("[{}]", list_text(v, string_text));
        }
        std::string operator()(const std::vector<Tensor>& v) const {
            return fmt::format("[{}]", list_text(v, tensor_text));
        }
        std::string operator()(const std::shared_ptr<const Graph>&) const { return ""; }  // printed as a block
    };
    return std::visit(Visitor(), a);
}

void print_graph(const Graph& g, const std::string& indent, std::string& out);

void print_node(const Node& n, const std::string& indent, std::string& out) {
    const std::string op = n.domain.empty() ? n.op : n.domain + "." + n.op;
    out += fmt::format("{}{} = {}@{}{}", indent, names_text(n.outputs), name_text(op), n.opset, names_text(n.inputs));
    std::vector<std::string> attributes;
    for (const auto& [name, value] : n.attributes)
        if (!std::holds_alternative<std::shared_ptr<const Graph>>(value))
            attributes.push_back(fmt::format("{}={}", name_text(name), attribute_text(value)));
    if (!attributes.empty()) out += fmt::format(" {{{}}}", fmt::join(attributes, ", "));
    out += fmt::format("  # {}\n", name_text(n.name));
    for (const auto& [name, value] : n.attributes) {
        const auto* graph = std::get_if<std::shared_ptr<const Graph>>(&value);
        if (graph == nullptr) continue;
        out += fmt::format("{}  {} = ", indent, name_text(name));
        if (*graph == nullptr) {
            out += "null\n";
        } else {
            print_graph(**graph, indent + "  ", out);
        }
    }
}

void print_graph(const Graph& g, const std::string& indent, std::string& out) {
    out += fmt::format("graph {} {{\n", name_text(g.name));
    const std::string inner = indent + "  ";
    for (const GraphInput& i : g.inputs)
        out += fmt::format("{}input {}: {}\n", inner, name_text(i.name), type_text(i.type));
    for (const auto& [name, tensor] : g.initializers)
        out += fmt::format("{}initializer {}: {}\n", inner, name_text(name), tensor_text(tensor));
    for (const auto& [name, type] : g.value_info)
        out += fmt::format("{}value {}: {}\n", inner, name_text(name), type_text(type));
    for (const Node& n : g.nodes) print_node(n, inner, out);
    for (const GraphInput& o : g.outputs)
        out += fmt::format("{}output {}: {}\n", inner, name_text(o.name), type_text(o.type));
    out += indent + "}\n";
}

}  // namespace

std::string Graph::print() const {
    std::string out;
    print_graph(*this, "", out);
    return out;
}

}  // namespace tilewright
