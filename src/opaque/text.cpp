#include "opaque/text.h"

#include <algorithm>

#include "base/error.h"
#include "program/text.h"

namespace tilewright {

namespace {

constexpr const char* kOperatorText = "text of an operator";

}  // namespace

OpaqueText::OpaqueText(std::string_view text) {
    TextCursor cursor(text, kOperatorText);
    name_ = cursor.name();
    cursor.expect("(");
    for (bool first = true; !cursor.eat(")"); first = false) {
        if (!first) cursor.expect(",");
        const std::string key = cursor.name();
        cursor.expect("=");
        std::string value;
        if (cursor.peek("\"")) {
            value = cursor.name();
        } else {
            const size_t start = cursor.position();
            const size_t end = text.find_first_of(cursor.peek("[") ? "]" : ",)", start);
            if (end == std::string_view::npos) cursor.fail_expected("the end of a value");
            const size_t behind = end + (text[end] == ']' ? 1 : 0);
            value = text.substr(start, behind - start);
            cursor.rewind(behind);
        }
        if (!values_.emplace(key, std::move(value)).second) cursor.fail(fmt::format("'{}' is given twice", key));
    }
    if (!cursor.at_end()) cursor.fail_expected("the end of the text");
}

void OpaqueText::fail(const std::string& key, std::string_view expected) const {
    model_error("{} {}: attribute '{}' should be {}", kOperatorText, name_, key, expected);
}

const std::string& OpaqueText::text(const std::string& key) const {
    const auto it = values_.find(key);
    if (it == values_.end()) fail(key, "there");
    return it->second;
}

int64_t OpaqueText::integer(const std::string& key) const {
    TextCursor cursor(text(key), kOperatorText);
    const int64_t value = cursor.integer();
    if (!cursor.at_end()) fail(key, "an integer");
    return value;
}

double OpaqueText::number(const std::string& key) const {
    TextCursor cursor(text(key), kOperatorText);
    const double value = cursor.number();
    if (!cursor.at_end()) fail(key, "a number");
    return value;
}

DType OpaqueText::dtype(const std::string& key) const {
    const auto type = dtype_from_string(text(key));
    if (!type) fail(key, "an element type");
    return *type;
}

std::vector<int64_t> OpaqueText::integers(const std::string& key) const {
    TextCursor cursor(text(key), kOperatorText);
    std::vector<int64_t> out;
    cursor.expect("[");
    while (!cursor.eat("]")) {
        if (!out.empty()) cursor.expect(",");
        out.push_back(cursor.integer());
    }
    if (!cursor.at_end()) fail(key, "a list of integers");
    return out;
}

size_t OpaqueText::position(const std::string& key, std::span<const std::string_view> names) const {
    const auto it = std::find(names.begin(), names.end(), text(key));
    if (it == names.end()) fail(key, "one of the names that the operator has for it");
    return static_cast<size_t>(it - names.begin());
}

int64_t OpaqueText::below(const std::string& key, int64_t count) const {
    const int64_t value = integer(key);
    if (value < 0 || value >= count) fail(key, fmt::format("in [0, {})", count));
    return value;
}

std::shared_ptr<const OpaqueOp> opaque_op(std::string_view text, const CustomOperators* operators) {
    static const std::map<std::string_view, OpaqueReader> readers = [] {
        std::map<std::string_view, OpaqueReader> all;
        for (const auto of_file :
             {selection_readers, signal_readers, vision_readers, cast_readers, scatter_readers, append_readers,
              reduction_readers, resize_readers, unpool_readers, checked_value_readers, condition_readers})
            for (const OpaqueReader& r : of_file()) all.emplace(r.name, r);
        return all;
    }();
    const OpaqueText parsed(text);
    if (parsed.name() == kCustomName) return read_custom(parsed, operators);
    const auto it = readers.find(parsed.name());
    return it == readers.end() ? nullptr : it->second.read(parsed);
}

}  // namespace tilewright
