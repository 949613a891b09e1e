#include "graph/graph.h"

#include <fmt/format.h>

#include "base/error.h"

namespace tilewright {

namespace {

struct CodePoint {
    uint32_t value = 0;
    size_t bytes = 0;  // 0 if the text does not start with valid UTF-8
};

/// The first code point of `s`. Overlong forms, surrogates and numbers past U+10FFFF are not valid.
CodePoint decode_utf8(std::string_view s) {
    const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(s[i])); };
    const uint32_t lead = byte(0);
    if (lead < 0x80) return {lead, 1};
    const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || s.size() < length) return {};
    uint32_t value = lead & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xC0) != 0x80) return {};
        value = (value << 6) | (byte(i) & 0x3F);
    }
    constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (value < kSmallest[length] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return {};
    return {value, length};
}

/// Characters that move a terminal's cursor, or reorder the text around them.
bool is_control(uint32_t c) {
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) ||
           (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF;
}

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

std::string quoted_name(std::string_view name, size_t max_bytes) {
    std::string out = "'";
    std::string_view rest = name;
    while (!rest.empty() && name.size() - rest.size() < max_bytes) {
        const CodePoint c = decode_utf8(rest);
        if (c.bytes == 0) {
            out += fmt::format("\\x{:02x}", static_cast<unsigned char>(rest[0]));
        } else if (c.value == '\n') {
            out += "\\n";
        } else if (c.value == '\'' || c.value == '\\') {
            out += '\\';
            out += static_cast<char>(c.value);
        } else if (is_control(c.value)) {
            out += fmt::format("\\u{{{:x}}}", c.value);
        } else {
            out += rest.substr(0, c.bytes);
        }
        rest.remove_prefix(c.bytes == 0 ? 1 : c.bytes);
    }
    if (!rest.empty()) return out + fmt::format("...' ({} bytes)", name.size());
    return out + "'";
}

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
