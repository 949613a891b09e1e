#include "ops/type_constraints.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/error.h"
#include "ops/type_constraints_text.h"

namespace tilewright {

namespace {

int64_t number_in(std::string_view text) {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    TW_CHECK(error == std::errc() && end == text.data() + text.size(), "'{}' is not a number", text);
    return n;
}

/// Splits `text` at the next `end`: returns the prefix and removes both.
std::string_view take(std::string_view& text, char end) {
    const size_t at = std::min(text.find(end), text.size());
    const std::string_view out = text.substr(0, at);
    text.remove_prefix(std::min(at + 1, text.size()));
    return out;
}

struct Table {
    int64_t opset = 0;
    std::vector<OperatorSchema> schemas;

    Table() {
        add(kTypeConstraints);
        add(kContribTypeConstraints);
        std::sort(schemas.begin(), schemas.end(), [](const OperatorSchema& a, const OperatorSchema& b) {
            return std::pair(a.op, a.since) < std::pair(b.op, b.since);
        });
    }

  private:
    void add(std::string_view text) {
        sets_.clear();
        while (!text.empty()) {
            std::string_view line = take(text, '\n');
            if (line.empty() || line.starts_with('#')) continue;
            const std::string_view first = take(line, ' ');
            const int64_t number = number_in(take(line, ' '));
            if (first == "opset")
                opset = number;
            else if (first == "set")
                add_set(line);
            else
                add_schema({first, number, {}}, line);
        }
    }

    void add_set(std::string_view names) {
        sets_.emplace_back();
        while (!names.empty()) {
            const std::string_view name = take(names, ' ');
            const std::optional<DType> t = dtype_from_string(name);
            TW_CHECK(t, "'{}' is not an element type", name);
            sets_.back().push_back(*t);
        }
    }

    /// "X:T=3 *rest:7"
    void add_schema(OperatorSchema schema, std::string_view inputs) {
        while (!inputs.empty()) {
            std::string_view type = take(inputs, ' ');
            FormalInput in;
            in.name = take(type, ':');
            in.variadic = in.name.starts_with('*') || in.name.starts_with('~');
            in.homogeneous = !in.name.starts_with('~');
            if (in.variadic) in.name.remove_prefix(1);
            if (type.find('=') != std::string_view::npos) in.parameter = take(type, '=');
            in.types = sets_.at(static_cast<size_t>(number_in(type)));
            schema.inputs.push_back(std::move(in));
        }
        schemas.push_back(std::move(schema));
    }

    std::vector<std::vector<DType>> sets_;
};

const Table& table() {
    static const Table table;
    return table;
}

std::string names_of(const std::vector<DType>& types) {
    std::string out;
    for (size_t i = 0; i < types.size(); ++i) {
        if (i > 0) out += i + 1 == types.size() ? " or " : ", ";
        out += to_string(types[i]);
    }
    return out;
}

}  // namespace

int64_t newest_opset() { return table().opset; }
const std::vector<OperatorSchema>& operator_schemas() { return table().schemas; }

const OperatorSchema* find_schema(std::string_view domain, std::string_view op, int64_t opset) {
    return domain.empty() ? find_schema(op, opset) : find_schema(fmt::format("{}.{}", domain, op), opset);
}

const OperatorSchema* find_schema(std::string_view op, int64_t opset) {
    const std::vector<OperatorSchema>& all = table().schemas;
    const auto after = std::upper_bound(all.begin(), all.end(), std::pair(op, opset),
                                        [](const auto& key, const auto& s) { return key < std::pair(s.op, s.since); });
    if (after != all.begin() && std::prev(after)->op == op) return &*std::prev(after);
    return after != all.end() && after->op == op ? &*after : nullptr;
}

std::optional<std::string> type_problem(const OperatorSchema& schema, std::span<const std::optional<DType>> types) {
    struct Bound {
        size_t input;
        DType type;
    };
    std::map<std::string_view, Bound> bound;  // by type parameter
    for (size_t i = 0; i < types.size() && !schema.inputs.empty(); ++i) {
        if (!types[i]) continue;
        const FormalInput& formal = schema.inputs[std::min(i, schema.inputs.size() - 1)];
        if (i >= schema.inputs.size() && !formal.variadic) break;
        const auto allowed = std::find(formal.types.begin(), formal.types.end(), *types[i]);
        if (allowed == formal.types.end())
            return fmt::format(
                "input {} ({}) has element type {}, and {} of opset {} allows {}; a Cast in front of it would help", i,
                formal.name, to_string(*types[i]), schema.op, schema.since,
                formal.types.empty() ? "no tensor of numbers" : names_of(formal.types));
        if (formal.parameter.empty() || !formal.homogeneous) continue;
        const auto [it, fresh] = bound.try_emplace(formal.parameter, Bound{i, *types[i]});
        if (!fresh && it->second.type != *types[i])
            return fmt::format(
                "input {} ({}) has element type {}, and input {} has {}: {} needs one type ({}) for both; a Cast in "
                "front of one would help",
                i, formal.name, to_string(*types[i]), it->second.input, to_string(it->second.type), schema.op,
                formal.parameter);
    }
    return std::nullopt;
}

}  // namespace tilewright
