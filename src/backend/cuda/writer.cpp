#include "backend/cuda/writer.h"

#include <cctype>
#include <set>

namespace tilewright::cuda {

std::string identifier(std::string_view wish) {
    std::string s;
    for (const char c : wish) {
        if (s.size() >= 40) break;
        if (std::isalnum(static_cast<unsigned char>(c)) != 0)
            s += c;
        else if (!s.empty() && s.back() != '_')
            s += '_';
    }
    while (!s.empty() && s.back() == '_') s.pop_back();
    // Words of the language, and names that the device's headers use at the top.
    static const std::set<std::string, std::less<>> kTaken = {
        "alignas", "alignof", "and",      "and_eq",   "asm",     "auto",      "bitand",    "bitor",     "bool",
        "break",   "case",    "catch",    "char",     "class",   "compl",     "const",     "constexpr", "continue",
        "default", "delete",  "do",       "double",   "else",    "enum",      "explicit",  "export",    "extern",
        "false",   "float",   "for",      "friend",   "goto",    "i16",       "i32",       "i64",       "i8",
        "if",      "inline",  "int",      "long",     "mutable", "namespace", "new",       "noexcept",  "not",
        "not_eq",  "nullptr", "operator", "or",       "or_eq",   "private",   "protected", "public",    "register",
        "return",  "short",   "signed",   "sizeof",   "static",  "struct",    "switch",    "template",  "this",
        "throw",   "true",    "try",      "tw",       "typedef", "typeid",    "typename",  "u16",       "u32",
        "u64",     "u8",      "union",    "unsigned", "using",   "virtual",   "void",      "volatile",  "while",
        "xor",     "xor_eq"};
    if (s.empty() || std::isdigit(static_cast<unsigned char>(s[0])) != 0 || kTaken.count(s) != 0) s = "n" + s;
    return s;
}

std::string Names::fresh(std::string_view wish) {
    const std::string base = identifier(wish);
    std::string name = base;
    for (int k = 2; !taken_.insert(name).second; ++k) name = base + "_" + std::to_string(k);
    return name;
}

}  // namespace tilewright::cuda
