// Symbols that count the size of a dimension in steps.

#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "index/expr.h"
#include "index/expr_parts.h"

namespace tilewright {

namespace {

/// "height/32" -> height, 32. Of step 1 without a number behind the mark.
std::pair<std::string_view, int64_t> in_steps(std::string_view text) {
    const size_t at = text.rfind(parts::kPerStep);
    int64_t step = 0;
    if (at == std::string_view::npos) return {text, 1};
    const char* end = text.data() + text.size();
    const auto [last, error] = std::from_chars(text.data() + at + 1, end, step);
    if (error != std::errc() || last != end || step < 1) return {text, 1};
    return {text.substr(0, at), step};
}

}  // namespace

Expr named_symbol(std::string_view text) {
    const auto [name, step] = in_steps(text);
    return symbol(name, step);
}

SizeName size_name(Var symbol) {
    TW_CHECK(symbol.kind == VarKind::Symbol);
    const auto [name, step] = in_steps(var_name(symbol));
    return {std::string(name), step};
}

std::optional<Var> bound_symbol(Expr dimension) {
    if (const auto v = dimension.as_var()) return v->kind == VarKind::Symbol ? v : std::nullopt;
    if (dimension.constant() != 0 || dimension.terms().size() != 1) return std::nullopt;
    const Term& t = dimension.terms()[0];
    if (t.atoms.size() != 1 || t.atoms[0]->kind != Atom::Kind::Var) return std::nullopt;
    const Var v = t.atoms[0]->var;
    return v.kind == VarKind::Symbol && size_name(v).step == t.coefficient ? std::optional(v) : std::nullopt;
}

}  // namespace tilewright
