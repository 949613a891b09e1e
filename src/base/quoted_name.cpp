#include "base/quoted_name.h"

#include <fmt/format.h>

#include <cstdint>

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

}  // namespace tilewright
