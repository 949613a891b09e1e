#include "backend/cuda/variables.h"

#include "base/error.h"
#include "index/expr_parts.h"

namespace tilewright::cuda {

Expr Variables::add(std::string_view name, Interval range) {
    names_of_.push_back(names_.fresh(name));
    return IndexVariables::add(name, range);
}

void Variables::call(Expr e, const std::string& name, Writer& out) {
    if (e.constant() != 0 || e.terms().size() != 1 || e.terms()[0].coefficient != 1 || e.terms()[0].atoms.size() != 1)
        return;
    const Atom& a = *e.terms()[0].atoms[0];
    if (a.kind == Atom::Kind::Var || called_.count(a.text) != 0) return;
    const std::string value = text(e), called = names_.fresh(name);
    out.line("const {} {} = {};", type(e), called, value);
    called_[a.text] = called;
}

void Variables::forget(Expr e) {
    if (e.terms().size() == 1 && e.terms()[0].atoms.size() == 1) called_.erase(e.terms()[0].atoms[0]->text);
}

namespace {

constexpr int64_t kMost = (int64_t{1} << 31) - 1;

/// |a| * b, or |a| + b, where that and both are at most kMost.
std::optional<int64_t> bounded_product(int64_t a, int64_t b) {
    if (a < -kMost || a > kMost || b > kMost) return std::nullopt;
    const int64_t v = std::abs(a) * b;
    return v <= kMost ? std::optional(v) : std::nullopt;
}
std::optional<int64_t> bounded_sum(int64_t a, int64_t b) {
    if (a < -kMost || a > kMost || b > kMost) return std::nullopt;
    const int64_t v = std::abs(a) + b;
    return v <= kMost ? std::optional(v) : std::nullopt;
}

}  // namespace

std::optional<int64_t> Variables::magnitude(const Atom& a) const {
    if (a.kind == Atom::Kind::Var) {
        if (a.var.kind != VarKind::Axis) return std::nullopt;
        const Interval& r = ranges_.axes.at(a.var.id);
        if (!r.lo || !r.hi) return std::nullopt;
        const auto lo = magnitude(*r.lo), hi = magnitude(*r.hi);  // over variables that were there before
        return lo && hi ? std::optional(std::max(*lo, *hi)) : std::nullopt;
    }
    const auto x = magnitude(a.a), y = magnitude(a.b);
    if (!x || !y) return std::nullopt;
    return a.kind == Atom::Kind::Mod ? *y : std::max(*x, *y);
}

/// No part of the sum passes it.
std::optional<int64_t> Variables::magnitude(Expr e) const {
    auto sum = bounded_sum(e.constant(), 0);
    for (const Term& t : e.terms()) {
        auto product = bounded_sum(t.coefficient, 0);
        for (const Atom* a : t.atoms) {
            const auto m = magnitude(*a);
            if (!m || !product) return std::nullopt;
            product = bounded_product(*product, *m);
        }
        if (!sum || !product) return std::nullopt;
        sum = bounded_sum(*sum, *product);
    }
    return sum;
}

bool Variables::type_is_int(Expr e) const { return magnitude(e).has_value(); }

std::string_view Variables::type(Expr e) const { return type_is_int(e) ? "int" : "i64"; }

std::string Variables::declaration(Expr variable) const {
    return fmt::format("const {} {}", type(variable), name(variable));
}

std::string Variables::print(const Atom& a, bool as_wide, const LoadText& loads) const {
    if (a.kind == Atom::Kind::Var) {
        if (a.var.kind == VarKind::Axis) {
            const std::string& n = names_of_.at(a.var.id - kStageAxes);
            return as_wide && magnitude(a) ? "i64(" + n + ")" : n;
        }
        if (a.var.kind == VarKind::Load) {
            TW_CHECK(loads != nullptr, "an index that is read from memory stands where none may");
            return loads(a.var.id);
        }
        const auto it = outer_.find(a.var);
        TW_CHECK(it != outer_.end(), "{} has no value in the kernel", a.text);
        return it->second;
    }
    if (const auto it = called_.find(a.text); it != called_.end()) return it->second;
    const auto operand = [&](Expr e, bool parentheses) { return print(e, as_wide, loads, parentheses); };
    switch (a.kind) {
        case Atom::Kind::Min:
            return fmt::format("tw::lesser({}, {})", operand(a.a, false), operand(a.b, false));
        case Atom::Kind::Max:
            return fmt::format("tw::greater({}, {})", operand(a.a, false), operand(a.b, false));
        default:
            break;
    }
    const bool division = a.kind == Atom::Kind::FloorDiv;
    if (nonnegative(a.a) && prove_positive(a.b, ranges_))
        return fmt::format("({} {} {})", operand(a.a, true), division ? "/" : "%", operand(a.b, true));
    return fmt::format("tw::{}({}, {})", division ? "floor_div" : "floor_rest", operand(a.a, false),
                       operand(a.b, false));
}

std::string Variables::condition(Expr e, const LoadText& loads) const {
    Expr least, most;
    for (const Term& t : e.terms()) {
        Expr term = t.coefficient < 0 ? -t.coefficient : t.coefficient;
        for (const Atom* a : t.atoms) term = term * parts::from_atom(*a);
        (t.coefficient < 0 ? least : most) += term;
    }
    const int64_t c = e.constant();
    if (c < 0 && c != INT64_MIN)
        least += -c;
    else
        most += c;
    const bool as_wide = !type_is_int(e);
    return fmt::format("{} <= {}", print(least, as_wide, loads, false), print(most, as_wide, loads, false));
}

std::string Variables::print(Expr e, bool as_wide, const LoadText& loads, bool parentheses) const {
    std::string s;
    const auto number = [&](int64_t v) {
        if (v == INT64_MIN) return std::string("(-9223372036854775807ll - 1)");
        return std::to_string(v) + (v > kMost || v < -kMost ? "ll" : "");
    };
    for (const Term& t : e.terms()) {
        std::string product;
        for (const Atom* a : t.atoms) product += (product.empty() ? "" : " * ") + print(*a, as_wide, loads);
        const int64_t size = t.coefficient < 0 ? -t.coefficient : t.coefficient;
        if (size != 1) product += " * " + number(size);
        if (s.empty())
            s = (t.coefficient < 0 ? "-" : "") + product;
        else
            s += (t.coefficient < 0 ? " - " : " + ") + product;
    }
    const int64_t c = e.constant();
    if (s.empty()) return as_wide ? fmt::format("i64({})", number(c)) : number(c);
    if (c != 0) s += c < 0 && c != INT64_MIN ? " - " + number(-c) : " + " + number(c);
    const bool sum = e.terms().size() + (c != 0 ? 1 : 0) > 1 || e.terms()[0].coefficient < 0;
    return sum && parentheses ? "(" + s + ")" : s;
}

}  // namespace tilewright::cuda
