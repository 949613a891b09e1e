#include "graph/graph.h"

#include <fmt/format.h>

#include "base/error.h"

namespace tilewright {

namespace {

std::string_view type_name(const Attribute& a) {
    constexpr std::string_view kNames[] = {
        "an integer",       "a float",           "a string",          "a tensor", "a list of integers",
        "a list of floats", "a list of strings", "a list of tensors", "a graph"};
    static_assert(std::size(kNames) == std::variant_size_v<Attribute>);
    return kNames[a.index()];
}

/// Null if the node has no such attribute.
template <class T>
const T* find_attribute(const Node& node, const std::string& name, std::string_view expected) {
    const auto it = node.attributes.find(name);
    if (it == node.attributes.end()) return nullptr;
    const T* value = std::get_if<T>(&it->second);
    if (value == nullptr)
        model_error("{}: attribute '{}' should be {}, and is {}", node.describe(), name, expected,
                    type_name(it->second));
    return value;
}

template <class T>
T attribute_or(const Node& node, const std::string& name, const T& fallback, std::string_view expected) {
    const T* value = find_attribute<T>(node, name, expected);
    return value != nullptr ? *value : fallback;
}

}  // namespace

int64_t Node::attr_int(const std::string& attribute, int64_t fallback) const {
    return attribute_or<int64_t>(*this, attribute, fallback, "an integer");
}

float Node::attr_float(const std::string& attribute, float fallback) const {
    return attribute_or<float>(*this, attribute, fallback, "a float");
}

std::string Node::attr_string(const std::string& attribute, const std::string& fallback) const {
    return attribute_or<std::string>(*this, attribute, fallback, "a string");
}

std::vector<int64_t> Node::attr_ints(const std::string& attribute, const std::vector<int64_t>& fallback) const {
    return attribute_or<std::vector<int64_t>>(*this, attribute, fallback, "a list of integers");
}

std::vector<float> Node::attr_floats(const std::string& attribute, const std::vector<float>& fallback) const {
    return attribute_or<std::vector<float>>(*this, attribute, fallback, "a list of floats");
}

std::vector<std::string> Node::attr_strings(const std::string& attribute,
                                            const std::vector<std::string>& fallback) const {
    return attribute_or<std::vector<std::string>>(*this, attribute, fallback, "a list of strings");
}

const Tensor* Node::attr_tensor(const std::string& attribute) const {
    return find_attribute<Tensor>(*this, attribute, "a tensor");
}

const Graph* Node::attr_graph(const std::string& attribute) const {
    const auto* graph = find_attribute<std::shared_ptr<const Graph>>(*this, attribute, "a graph");
    return graph != nullptr ? graph->get() : nullptr;
}

std::string Node::describe() const {
    const auto plain = [](const std::string& s) {
        const std::string quoted = quoted_name(s);
        return quoted.back() == '\'' ? quoted.substr(1, quoted.size() - 2) : quoted;
    };
    const std::string full_op = domain.empty() ? op : domain + "." + op;
    return fmt::format("node {} ({}, opset {})", quoted_name(name), plain(full_op), opset);
}

}  // namespace tilewright
