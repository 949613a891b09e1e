#include "driver/opspec/op_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "driver/opspec/kinds.h"

namespace tilewright {

namespace {

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
    Number v{};
    const char* begin = text.data();
    const char* end = begin + text.size();
    const auto [stop, error] = std::from_chars(begin, end, v);
    if (error != std::errc() || stop != end) return std::nullopt;
    return v;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
    std::vector<std::string_view> parts;
    for (size_t at = 0; at <= text.size();) {
        const size_t end = std::min(text.find_first_of(separators, at), text.size());
        parts.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return parts;
}

std::vector<std::string_view> words(std::string_view line) {
    std::vector<std::string_view> out = split(line, " \t\r");
    out.erase(std::remove(out.begin(), out.end(), std::string_view()), out.end());
    return out;
}

template <class List>
std::vector<std::string> names_of(const List& list) {
    std::vector<std::string> out;
    out.reserve(list.size());
    for (const auto& item : list) out.push_back(item.name);
    return out;
}

std::string expected(const OpParam& p) {
    const std::string range = p.highest < int64_t{1} << 30 ? fmt::format("{} to {}", p.lowest, p.highest)
                                                           : fmt::format("at least {}", p.lowest);
    switch (p.type) {
        case OpParam::Type::Number:
            return "a whole number, " + range;
        case OpParam::Type::Real:
            return "a number, as in 0.125";
        case OpParam::Type::Choice:
            return fmt::format("{}", fmt::join(p.choices, ", "));
        case OpParam::Type::Numbers:
            return "whole numbers with ':' between them, as in 64:128:64, each " + range;
    }
    return {};
}

bool is_valid(const OpParam& p, std::string_view value) {
    const auto in_range = [&](std::string_view text) {
        const auto n = parse_number<int64_t>(text);
        return n && *n >= p.lowest && *n <= p.highest;
    };
    switch (p.type) {
        case OpParam::Type::Number:
            return in_range(value);
        case OpParam::Type::Real: {
            const auto x = parse_number<double>(value);
            return x && std::isfinite(*x);
        }
        case OpParam::Type::Choice:
            return std::find(p.choices.begin(), p.choices.end(), value) != p.choices.end();
        case OpParam::Type::Numbers: {
            const std::vector<std::string_view> parts = split(value, ":");
            return std::all_of(parts.begin(), parts.end(), in_range);
        }
    }
    return false;
}

/// Fills in fallbacks. A fallback "=h" needs h's own value first, which precedes it in the table.
void complete(OpSpec& op) {
    op.values = op.given;
    std::vector<std::string> missing;
    for (const OpParam& p : op.kind->params) {
        if (op.has(p.name)) continue;
        if (p.required)
            missing.push_back(p.name);
        else if (p.fallback.starts_with('=')) {
            const auto other = op.values.find(p.fallback.substr(1));
            if (other != op.values.end()) op.values[p.name] = other->second;
        } else if (!p.fallback.empty()) {
            op.values[p.name] = p.fallback;
        }
    }
    if (!missing.empty())
        throw ModelError(fmt::format("operator '{}' needs {}", op.kind->name, fmt::join(missing, ", ")),
                         fmt::format("write {} {}=64 ...", op.kind->name, missing[0]));
}

}  // namespace

const OpParam* OpKind::find(std::string_view param) const {
    const auto it = std::find_if(params.begin(), params.end(), [&](const OpParam& p) { return p.name == param; });
    return it == params.end() ? nullptr : &*it;
}

const std::vector<OpKind>& op_kinds() {
    static const std::vector<OpKind> all = [] {
        std::vector<OpKind> kinds;
        nets::add_product_ops(kinds);
        nets::add_window_ops(kinds);
        nets::add_row_ops(kinds);
        nets::add_block_ops(kinds);
        return kinds;
    }();
    return all;
}

const std::string& OpSpec::text(const std::string& name) const {
    const auto it = values.find(name);
    TW_CHECK(it != values.end(), "operator '{}' has no value for '{}'", kind->name, name);
    return it->second;
}

int64_t OpSpec::number(const std::string& name) const {
    const auto n = parse_number<int64_t>(text(name));
    TW_CHECK(n.has_value(), "'{}' of operator '{}' is not a number", name, kind->name);
    return *n;
}

double OpSpec::real(const std::string& name) const {
    const auto x = parse_number<double>(text(name));
    TW_CHECK(x.has_value(), "'{}' of operator '{}' is not a number", name, kind->name);
    return *x;
}

std::vector<int64_t> OpSpec::numbers(const std::string& name) const {
    std::vector<int64_t> out;
    for (const std::string_view part : split(text(name), ":")) {
        const auto n = parse_number<int64_t>(part);
        TW_CHECK(n.has_value(), "'{}' of operator '{}' is not a list of numbers", name, kind->name);
        out.push_back(*n);
    }
    return out;
}

std::string OpSpec::print() const {
    std::string line = kind->name;
    for (const OpParam& p : kind->params)
        if (const auto it = given.find(p.name); it != given.end()) line += fmt::format(" {}={}", p.name, it->second);
    return line;
}

OpSpec parse_op(std::string_view line) {
    const std::vector<std::string_view> parts = words(line);
    if (parts.empty())
        throw ModelError("an operator is missing", "write NAME key=value ..., as in gemm m=64 n=64 k=64");
    const std::vector<OpKind>& kinds = op_kinds();
    const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const OpKind& k) { return k.name == parts[0]; });
    if (kind == kinds.end())
        throw ModelError(fmt::format("there is no operator '{}'", parts[0]),
                         fmt::format("choose from {}", fmt::join(names_of(kinds), ", ")));
    OpSpec op;
    op.kind = &*kind;
    for (size_t i = 1; i < parts.size(); ++i) {
        const size_t at = parts[i].find('=');
        if (at == std::string_view::npos || at == 0)
            throw ModelError(fmt::format("operator '{}': '{}' is not of the form key=value", kind->name, parts[i]),
                             fmt::format("its keys are {}", fmt::join(names_of(kind->params), ", ")));
        const std::string key(parts[i].substr(0, at)), value(parts[i].substr(at + 1));
        const OpParam* p = kind->find(key);
        if (p == nullptr)
            throw ModelError(fmt::format("operator '{}' has no key '{}'", kind->name, key),
                             fmt::format("its keys are {}", fmt::join(names_of(kind->params), ", ")));
        if (!is_valid(*p, value))
            throw ModelError(fmt::format("operator '{}': {} is '{}'", kind->name, key, value),
                             fmt::format("{} ({}) takes {}", key, p->help, expected(*p)));
        if (!op.given.emplace(key, value).second) model_error("operator '{}': {} is given twice", kind->name, key);
    }
    complete(op);
    return op;
}

std::vector<BatchLine> parse_batch(std::string_view text, const std::string& path) {
    std::vector<BatchLine> out;
    int number = 0;
    for (std::string_view line : split(text, "\n")) {
        ++number;
        line = line.substr(0, line.find('#'));
        if (words(line).empty()) continue;
        try {
            out.push_back({number, parse_op(line)});
        } catch (const ModelError& e) {
            throw ModelError(fmt::format("{}:{}: {}", path, number, e.what()), e.hint());
        }
    }
    return out;
}

std::string print_op_kinds() {
    std::string out;
    const auto to = std::back_inserter(out);
    for (const OpKind& kind : op_kinds()) {
        fmt::format_to(to, "{:<20}{}\n", kind.name, kind.help);
        for (const OpParam& p : kind.params) {
            std::string value;
            if (p.required)
                value = "(needed)";
            else if (p.fallback.starts_with('='))
                value = fmt::format("(as {})", p.fallback.substr(1));
            else if (!p.fallback.empty())
                value = p.fallback;
            std::string choices;
            if (!p.choices.empty()) choices = fmt::format(": {}", fmt::join(p.choices, ", "));
            fmt::format_to(to, "    {:<24}{}{}\n", p.name + "=" + value, p.help, choices);
        }
    }
    return out;
}

}  // namespace tilewright
