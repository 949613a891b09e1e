#include "index/map.h"

#include <algorithm>

#include "base/error.h"
#include "index/expr_parts.h"

namespace tilewright {

IndexMap identity_map(std::span<const Expr> extents) {
    IndexMap m{{extents.begin(), extents.end()}, {}};
    for (size_t k = 0; k < extents.size(); ++k) m.results.push_back(axis(k));
    return m;
}

IndexMap split_axis(std::span<const Expr> extents, size_t split, Expr factor) {
    TW_CHECK(split < extents.size(), "axis {} of {}", split, extents.size());
    const Expr blocks = floor_div(extents[split], factor);
    TW_CHECK(blocks * factor == extents[split], "{} does not divide {}", factor.text(), extents[split].text());
    IndexMap m{{extents.begin(), extents.end()}, {}};
    m.extents[split] = factor;
    m.extents.insert(m.extents.begin() + static_cast<std::ptrdiff_t>(split), blocks);
    for (size_t k = 0; k < extents.size(); ++k)
        m.results.push_back(k < split ? axis(k) : k > split ? axis(k + 1) : axis(k) * factor + axis(k + 1));
    return m;
}

IndexMap fuse_axes(std::span<const Expr> extents, size_t first, size_t count) {
    TW_CHECK(count > 0 && first + count <= extents.size(), "axes {} to {} of {}", first, first + count, extents.size());
    IndexMap m;
    m.extents.assign(extents.begin(), extents.begin() + static_cast<std::ptrdiff_t>(first));
    m.extents.push_back(product(extents.subspan(first, count)));
    m.extents.insert(m.extents.end(), extents.begin() + static_cast<std::ptrdiff_t>(first + count), extents.end());
    for (size_t k = 0; k < extents.size(); ++k) {
        if (k < first || k >= first + count) {
            m.results.push_back(axis(k < first ? k : k - count + 1));
            continue;
        }
        const Expr above = floor_div(axis(first), product(extents.subspan(k + 1, first + count - k - 1)));
        m.results.push_back(k == first ? above : mod(above, extents[k]));
    }
    return m;
}

IndexMap permute_axes(std::span<const Expr> extents, std::span<const size_t> permutation) {
    TW_CHECK(permutation.size() == extents.size());
    IndexMap m;
    m.results.resize(extents.size());
    for (size_t k = 0; k < permutation.size(); ++k) {
        m.extents.push_back(extents[permutation[k]]);
        m.results.at(permutation[k]) = axis(k);
    }
    return m;
}

IndexMap reverse_axis(std::span<const Expr> extents, size_t reversed) {
    IndexMap m = identity_map(extents);
    m.results.at(reversed) = extents[reversed] - 1 - axis(reversed);
    return m;
}

IndexMap compose(const IndexMap& outer, const IndexMap& inner) {
    TW_CHECK(outer.extents.size() == inner.results.size(), "{} after {}", print(outer), print(inner));
    IndexMap m{inner.extents, {}};
    const Ranges ranges = inner.ranges();
    for (const Expr r : outer.results) m.results.push_back(simplify(substitute_axes(r, inner.results), ranges));
    return m;
}

IndexMap simplify(const IndexMap& map) {
    IndexMap m = map;
    const Ranges ranges = map.ranges();
    for (Expr& r : m.results) r = simplify(r, ranges);
    return m;
}

std::string print(const IndexMap& map) { return to_string(map.extents) + " -> " + to_string(map.results); }

namespace {

/// The number (source // lower) % extent + offset. The source starts at 0.
struct Digit {
    Expr source, lower, extent, offset;
};

std::optional<Expr> divide(Expr e, Expr by) {
    const Expr q = floor_div(e, by);
    if (q * by == e) return q;
    return std::nullopt;
}

bool varies(const Atom& a) {
    if (a.kind == Atom::Kind::Var) return a.var.kind == VarKind::Axis || a.var.kind == VarKind::Load;
    return !is_uniform(a.a) || !is_uniform(a.b);
}

/// Solves the equations "expression over the map's axes = expression over the codomain's axes" one after the other. The
/// left side of an equation is read as a mixed-radix number whose digits are axes or digits of another number:
///     24*i0 + (i1 // 2) = o0   with  i1 // 2 < 24    gives   i0 = o0 // 24,   i1 // 2 = o0 % 24
/// Digits of one source are collected until they are complete; the source then is a new equation.
class Inverter {
  public:
    Inverter(const IndexMap& map, std::span<const Expr> codomain)
        : map_(map), ranges_(map.ranges()), codomain_(codomain), axes_(map.extents.size()) {}

    std::optional<IndexMap> run() {
        if (map_.results.size() != codomain_.size()) return std::nullopt;
        for (size_t k = 0; k < axes_.size(); ++k)
            if (map_.extents[k].is_constant(1)) axes_[k] = Expr(0);
        for (size_t d = 0; d < codomain_.size(); ++d)
            if (!solve(simplify(map_.results[d], ranges_), axis(d), codomain_[d])) return std::nullopt;
        while (!pending_.empty())
            if (!solve_one_source()) return std::nullopt;
        IndexMap inverse{{codomain_.begin(), codomain_.end()}, {}};
        const Ranges ranges = inverse.ranges();
        for (const auto& a : axes_) {
            if (!a) return std::nullopt;
            inverse.results.push_back(simplify(*a, ranges));
        }
        return inverse;
    }

  private:
    struct Known {
        Expr lower, extent, value;
    };
    struct Source {
        Expr expr;
        std::vector<Known> digits;
    };

    /// The number of values 0 .. n-1 of an expression over the axes, if it starts at 0.
    std::optional<Expr> extent_of(Expr e) const {
        const Interval b = bounds(e, ranges_);
        if (!b.lo || !b.hi || !b.lo->is_constant(0)) return std::nullopt;
        return *b.hi + 1;
    }

    std::optional<Digit> digit(const Atom& a) const {
        if (a.kind == Atom::Kind::Var) {
            if (a.var.kind != VarKind::Axis || a.var.id >= map_.extents.size()) return std::nullopt;
            return Digit{Expr::var(a.var), 1, map_.extents[a.var.id], 0};
        }
        if ((a.kind != Atom::Kind::FloorDiv && a.kind != Atom::Kind::Mod) || !is_uniform(a.b)) return std::nullopt;
        const bool div = a.kind == Atom::Kind::FloorDiv;
        if (const Atom* inner = parts::single_atom(a.a)) {
            const auto d = digit(*inner);
            const auto rest = d && d->offset.is_constant(0) ? divide(d->extent, a.b) : std::nullopt;
            if (rest) return div ? Digit{d->source, d->lower * a.b, *rest, 0} : Digit{d->source, d->lower, a.b, 0};
        }
        // (x // b) = ((x - lo) // b) + lo / b
        const Interval range = bounds(a.a, ranges_);
        if (!range.lo || !range.hi) return std::nullopt;
        const auto offset = divide(*range.lo, a.b);
        if (!offset) return std::nullopt;
        const Expr source = a.a - *range.lo;
        if (!div) return Digit{source, 1, a.b, 0};
        const auto rest = divide(*range.hi - *range.lo + 1, a.b);
        if (!rest) return std::nullopt;
        return Digit{source, a.b, *rest, *offset};
    }

    bool learn(const Digit& d, Expr value) {
        const auto v = d.source.as_var();
        if (v && v->kind == VarKind::Axis && d.lower.is_constant(1) && d.extent == map_.extents[v->id]) {
            if (axes_[v->id]) return false;
            axes_[v->id] = value;
            return true;
        }
        const auto it =
            std::find_if(pending_.begin(), pending_.end(), [&](const Source& s) { return s.expr == d.source; });
        Source& s = it != pending_.end() ? *it : pending_.emplace_back(Source{d.source, {}});
        s.digits.push_back({d.lower, d.extent, value});
        return true;
    }

    bool solve(Expr left, Expr value, Expr extent) {
        if (extent.is_constant(1)) return left.is_constant(0);
        struct Piece {
            Expr scale;
            Digit digit;
            bool reversed;
        };
        std::vector<Piece> pieces;
        Expr rest = left.constant();
        for (const Term& t : left.terms()) {
            Expr scale = t.coefficient < 0 ? -Expr(t.coefficient) : Expr(t.coefficient);
            const Atom* varying = nullptr;
            for (const Atom* a : t.atoms) {
                if (!varies(*a)) {
                    scale = scale * parts::from_atom(*a);
                } else if (varying != nullptr) {
                    return false;
                } else {
                    varying = a;
                }
            }
            const bool reversed = t.coefficient < 0;
            if (varying == nullptr) {
                rest += reversed ? -scale : scale;
                continue;
            }
            const auto d = digit(*varying);
            if (!d) return false;
            rest += reversed ? -(scale * (d->extent - 1 + d->offset)) : scale * d->offset;
            pieces.push_back({scale, *d, reversed});
        }
        if (!rest.is_constant(0)) return false;
        Expr scale = 1;
        while (!pieces.empty()) {
            const auto it =
                std::find_if(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.scale == scale; });
            if (it == pieces.end()) return false;
            const Piece p = *it;
            pieces.erase(it);
            Expr v = floor_div(value, scale);
            if (!pieces.empty()) v = mod(v, p.digit.extent);
            if (!learn(p.digit, p.reversed ? p.digit.extent - 1 - v : v)) return false;
            scale = scale * p.digit.extent;
        }
        return scale == extent;
    }

    /// The weight of the first unknown digit, and the number that the digits below it form.
    struct Chain {
        Expr weight = 1, value = 0;
        size_t length = 0;
    };
    static Chain chain(const Source& s) {
        Chain c;
        for (;;) {
            const auto next =
                std::find_if(s.digits.begin(), s.digits.end(), [&](const Known& k) { return k.lower == c.weight; });
            if (next == s.digits.end() || c.length == s.digits.size()) return c;
            c.value += next->value * next->lower;
            c.weight = c.weight * next->extent;
            ++c.length;
        }
    }

    /// Finds a source whose digits are all known and solves source = sum of digit * lower.
    bool solve_one_source() {
        for (auto it = pending_.begin(); it != pending_.end(); ++it) {
            const auto n = extent_of(it->expr);
            if (!n) return false;
            const Chain c = chain(*it);
            if (c.length != it->digits.size() || !(c.weight == *n)) continue;
            const Expr source = it->expr;
            pending_.erase(it);
            return solve(source, c.value, *n);
        }
        return move_one_digit();
    }

    /// x // lower with divisions inside x moved out: (15*i0 + (5*i1 + i2) // 2) // 10 -> (30*i0 + 5*i1 + i2) // 20
    static Expr flat_quotient(Expr x, Expr lower) {
        for (const Term& t : x.terms()) {
            if (t.atoms.size() != 1 || (t.coefficient != 1 && t.coefficient != -1)) continue;
            const Atom& a = *t.atoms[0];
            if (a.kind != Atom::Kind::FloorDiv || !prove_nonnegative(a.b - 1, {})) continue;
            const Expr rest = x - parts::from_atom(a) * t.coefficient;
            // -(y // c) is (c - 1 - y) // c
            return flat_quotient(rest * a.b + (t.coefficient > 0 ? a.a : a.b - 1 - a.a), lower * a.b);
        }
        return floor_div(x, lower);
    }

    /// True if both sources have common digits such that the digit `from` of its source is the digit of `to` at
    /// `weight`.
    bool same_digit(Expr from, const Known& digit, Expr to, Expr weight) const {
        const auto is_part = [&](Expr part, Expr part_weight, Expr whole, Expr whole_weight) {
            const auto n = extent_of(part);
            const auto below = divide(whole_weight, part_weight);
            return n && below && divide(*n, part_weight * digit.extent) &&
                   simplify(mod(floor_div(whole, *below), *n), ranges_) == part;
        };
        if (is_part(from, digit.lower, to, weight) || is_part(to, weight, from, digit.lower)) return true;
        return simplify(mod(flat_quotient(from, digit.lower), digit.extent), ranges_) ==
               simplify(mod(flat_quotient(to, weight), digit.extent), ranges_);
    }

    /// A digit of one source may be a digit of another source whose lower digits are known:
    ///     (24*i0 + i1) // 36  is  (4*i0 + i1 // 6) // 6        i0 // 8  is  (3*i0 + i1) // 24
    bool move_one_digit() {
        if (--moves_ < 0) return false;
        for (Source& from : pending_)
            for (Source& to : pending_) {
                if (&from == &to) continue;
                const Expr weight = chain(to).weight;
                for (size_t k = 0; k < from.digits.size(); ++k) {
                    if (!same_digit(from.expr, from.digits[k], to.expr, weight)) continue;
                    Known moved = from.digits[k];
                    moved.lower = weight;
                    to.digits.push_back(moved);
                    from.digits.erase(from.digits.begin() + static_cast<std::ptrdiff_t>(k));
                    if (from.digits.empty()) pending_.erase(pending_.begin() + (&from - pending_.data()));
                    return true;
                }
            }
        return false;
    }

    const IndexMap& map_;
    Ranges ranges_;
    std::span<const Expr> codomain_;
    std::vector<std::optional<Expr>> axes_;
    std::vector<Source> pending_;
    int moves_ = 64;  // termination: a digit could move between two sources without end
};

}  // namespace

std::optional<IndexMap> invert(const IndexMap& map, std::span<const Expr> codomain) {
    return Inverter(map, codomain).run();
}

}  // namespace tilewright
