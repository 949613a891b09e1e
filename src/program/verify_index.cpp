#include "program/verify_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "index/facts.h"

namespace tilewright {

namespace {

constexpr int64_t kMaxPoints = 20000;
constexpr size_t kMaxSymbols = 8;

using Symbols = std::map<Var, int64_t>;

/// Values of the symbols to try: all equal, ascending, descending, and each one large among small ones.
std::vector<Symbols> assignments(const std::vector<Var>& symbols) {
    std::vector<Symbols> out;
    if (symbols.empty()) return {Symbols{}};
    const auto with = [&](const auto& value_of) {
        Symbols s;
        for (size_t k = 0; k < symbols.size(); ++k) s[symbols[k]] = value_of(static_cast<int64_t>(k));
        out.push_back(std::move(s));
    };
    const auto count = static_cast<int64_t>(symbols.size());
    for (const int64_t all : {1, 2, 5, 12}) with([&](int64_t) { return all; });
    with([&](int64_t k) { return 2 + 3 * k; });
    with([&](int64_t k) { return 2 + 3 * (count - 1 - k); });
    for (int64_t large = 0; large < count; ++large)
        for (const int64_t small : {1, 3}) with([&](int64_t k) { return k == large ? 700 : small; });
    return out;
}

/// The values tried for an axis: all if that is affordable, else both ends, the middle, and the neighbours of the
/// constants that occur.
std::vector<int64_t> candidates(int64_t extent, int64_t budget, const std::set<int64_t>& constants) {
    std::set<int64_t> s;
    if (extent <= budget) {
        for (int64_t k = 0; k < extent; ++k) s.insert(k);
    } else {
        s = {0, extent - 1};
        for (const int64_t k : {int64_t{1}, extent / 2, extent - 2}) s.insert(k);
        for (const int64_t c : constants)
            for (const int64_t k : {c - 1, c, c + 1, extent - c})
                if (static_cast<int64_t>(s.size()) < budget && k >= 0 && k < extent) s.insert(k);
        while (static_cast<int64_t>(s.size()) > std::max<int64_t>(budget, 2)) s.erase(std::next(s.begin()));
    }
    return {s.begin(), s.end()};
}

void collect_constants(Expr e, std::set<int64_t>& out) {
    out.insert(e.constant() < 0 ? -e.constant() : e.constant());
    for (const Term& t : e.terms())
        for (const Atom* a : t.atoms) {
            if (a->kind == Atom::Kind::Var) continue;
            collect_constants(a->a, out);
            collect_constants(a->b, out);
        }
}

class ReachSearch {
  public:
    ReachSearch(Expr index, Expr dimension, std::span<const Expr> valid, std::span<const Expr> extents,
                std::span<const Requirement> requirements)
        : index_(index),
          dimension_(dimension),
          valid_(valid.begin(), valid.end()),
          extents_(extents),
          requirements_(requirements) {}

    std::optional<std::string> run() {
        std::vector<Expr> all = valid_;
        all.push_back(index_);
        all.push_back(dimension_);
        std::vector<Var> symbols;
        for (size_t k = 0; k < all.size(); ++k) {
            collect_constants(all[k], constants_);
            for (const Var v : variables(all[k])) {
                if (v.kind == VarKind::Load || v.kind == VarKind::Scalar) return std::nullopt;
                if (v.kind == VarKind::Symbol && std::find(symbols.begin(), symbols.end(), v) == symbols.end())
                    symbols.push_back(v);
                if (v.kind != VarKind::Axis || std::find(axes_.begin(), axes_.end(), v.id) != axes_.end()) continue;
                if (v.id >= extents_.size()) return std::nullopt;
                axes_.push_back(v.id);
                all.push_back(extents_[v.id]);
            }
        }
        std::sort(axes_.begin(), axes_.end());
        if (symbols.size() > kMaxSymbols) return std::nullopt;
        add_required(symbols);
        std::optional<std::string> found;
        for (const Symbols& s : assignments(symbols)) {
            if (is_refused(s)) continue;
            const std::optional<std::string> shown = outside(s);
            if (!shown) return std::nullopt;
            if (!found) found = shown;
        }
        return found;
    }

  private:
    /// The symbols that requirements relate to the given ones, as long as they are few.
    void add_required(std::vector<Var>& symbols) const {
        const std::vector<Var> given = symbols;
        const auto among = [](const std::vector<Var>& list, Var v) {
            return std::find(list.begin(), list.end(), v) != list.end();
        };
        for (const Requirement& r : requirements_) {
            std::vector<Var> names = variables(r.a);
            for (const Var v : variables(r.b)) names.push_back(v);
            std::vector<Var> more = symbols;
            for (const Var v : names)
                if (v.kind == VarKind::Symbol && !among(more, v)) more.push_back(v);
            const bool concerned = std::any_of(names.begin(), names.end(), [&](Var v) { return among(given, v); });
            if (concerned && more.size() <= kMaxSymbols) symbols = std::move(more);
        }
    }

    /// Whether a requirement is violated at the point; requirements over other symbols are ignored.
    bool is_refused(const Symbols& symbols) const {
        const auto known = [&](Expr e) {
            const std::vector<Var> names = variables(e);
            return std::all_of(names.begin(), names.end(), [&](Var v) { return symbols.count(v) != 0; });
        };
        return std::any_of(requirements_.begin(), requirements_.end(), [&](const Requirement& r) {
            return known(r.a) && known(r.b) && !r.holds(evaluate(r.a, symbols), evaluate(r.b, symbols));
        });
    }

    std::optional<std::string> outside(const Symbols& symbols) {
        const std::function<std::optional<int64_t>(Var)> names = [&](Var v) -> std::optional<int64_t> {
            const auto it = symbols.find(v);
            return it == symbols.end() ? std::nullopt : std::optional(it->second);
        };
        std::vector<int64_t> point(extents_.size(), 0);
        Env env;
        env.axes = point;
        env.names = &names;
        std::vector<std::vector<int64_t>> tries;
        int64_t left = kMaxPoints, remaining = static_cast<int64_t>(axes_.size());
        for (const uint32_t a : axes_) {
            const int64_t extent = evaluate(extents_[a], env);
            if (extent <= 0) return std::nullopt;
            int64_t budget = 2;  // the largest number of tries per axis that the remaining axes can all have
            const auto power = [&](int64_t base) {
                int64_t p = 1;
                for (int64_t k = 0; k < remaining && p <= left; ++k) p *= base;
                return p;
            };
            while (budget < left && power(budget + 1) <= left) ++budget;
            tries.push_back(candidates(extent, budget, constants_));
            left = std::max<int64_t>(1, left / static_cast<int64_t>(tries.back().size()));
            --remaining;
        }
        const int64_t size = evaluate(dimension_, env);
        std::vector<size_t> at(axes_.size(), 0);
        for (int64_t n = 0; n < 4 * kMaxPoints; ++n) {
            for (size_t k = 0; k < axes_.size(); ++k) point[axes_[k]] = tries[k][at[k]];
            const bool inside = std::any_of(valid_.begin(), valid_.end(), [&](Expr c) { return evaluate(c, env) < 0; });
            if (!inside)
                if (const int64_t v = evaluate(index_, env); v < 0 || v >= size) return describe(symbols, point, v);
            size_t k = axes_.size();
            while (k > 0 && ++at[k - 1] == tries[k - 1].size()) at[--k] = 0;
            if (k == 0) break;
        }
        return std::nullopt;
    }

    std::string describe(const Symbols& symbols, const std::vector<int64_t>& point, int64_t value) const {
        std::string with, at;
        for (const auto& [v, number] : symbols)
            with += fmt::format("{}{} = {}", with.empty() ? "with " : ", ", Expr::var(v).text(), number);
        for (const uint32_t a : axes_) at += fmt::format("{}i{} = {}", at.empty() ? "" : ", ", a, point[a]);
        if (at.empty()) at = "it";
        return fmt::format("{}{}{} gives {}", with, with.empty() ? "" : ": ", at, value);
    }

    Expr index_, dimension_;
    std::vector<Expr> valid_;
    std::span<const Expr> extents_;
    std::span<const Requirement> requirements_;
    std::vector<uint32_t> axes_;
    std::set<int64_t> constants_;
};

}  // namespace

std::optional<std::string> find_outside(Expr index, Expr dimension, std::span<const Expr> valid,
                                        std::span<const Expr> extents, std::span<const Requirement> requirements) {
    try {
        const Ranges ranges = Ranges::of_extents(extents);
        if (prove_nonnegative(index, ranges, valid) && prove_nonnegative(dimension - 1 - index, ranges, valid))
            return std::nullopt;
        return ReachSearch(index, dimension, valid, extents, requirements).run();
    } catch (const ModelError&) {
        return std::nullopt;  // beyond 64 bits: no counterexample
    }
}

}  // namespace tilewright
