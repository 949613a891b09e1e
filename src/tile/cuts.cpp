#include "tile/cuts.h"

#include <algorithm>
#include <cstdint>

namespace tilewright {

namespace {

constexpr size_t kMostSegments = 72, kMostSegmentCode = 6000;

/// The first point of axis a from which on (or up to which) the condition holds for all values of the other axes.
std::optional<Expr> cut_of(Expr condition, size_t a, const Ranges& ranges) {
    const auto linear = linear_in(condition, {VarKind::Axis, static_cast<uint32_t>(a)});
    if (!linear || !linear->coefficient.is_constant() || linear->coefficient.is_constant(0)) return std::nullopt;
    for (const Var v : variables(linear->rest))
        if (v.kind == VarKind::Load) return std::nullopt;
    const int64_t k = linear->coefficient.constant();
    const auto least = bounds(linear->rest, ranges).lo;
    if (!least) return std::nullopt;
    for (const Var v : variables(*least))
        if (v.kind != VarKind::Symbol) return std::nullopt;
    return k > 0 ? ceil_div(-*least, k) : floor_div(*least, -k) + 1;
}

/// A Select whose condition is linear in the axes. Its second operand is chosen where the sum of the terms is at least
/// `least` if `above`, else below it.
///     select(lt(index(512*i0 + i1 - 256), 0), @0, @1)  ->  512*i0 + 1*i1, least 256, not above
struct AxisChoice {
    std::vector<std::pair<size_t, int64_t>> terms;  ///< axes and their coefficients
    int64_t least = 0;
    bool above = false;

    /// Whether the sum is at least `least` in all of a box, or in none of it. `range(a)`: of axis a, [from, to).
    template <class Range>
    std::optional<bool> reached(const Range& range) const {
        int64_t low = 0, high = 0;
        for (const auto& [axis, k] : terms) {
            const auto [from, to] = range(axis);
            if (from == INT64_MIN) return std::nullopt;
            low += k > 0 ? k * from : k * (to - 1);
            high += k > 0 ? k * (to - 1) : k * from;
        }
        if (low >= least) return true;
        return high < least ? std::optional(false) : std::nullopt;
    }
    /// Of each axis, the points at which the sum begins to reach `least` for some and for all points of the others.
    ///     512*i0 + i1 >= 768, i0 < 2, i1 < 512  ->  1 of i0, 256 of i1
    std::vector<std::pair<size_t, int64_t>> cuts(const std::vector<Expr>& extents) const {
        std::vector<std::pair<size_t, int64_t>> out;
        for (const auto& [axis, k] : terms) {
            int64_t low = 0, high = 0;  // of the other terms
            for (const auto& [other, step] : terms) {
                if (other == axis) continue;
                if (!extents[other].is_constant()) return {};
                const int64_t end = step * (extents[other].constant() - 1);
                low += std::min<int64_t>(0, end);
                high += std::max<int64_t>(0, end);
            }
            for (const int64_t others : {low, high}) {
                const int64_t rest = others - least, cut = k > 0 ? -floor_div(rest, k) : floor_div(rest, -k) + 1;
                if (cut > 0 && !(extents[axis].is_constant() && cut >= extents[axis].constant()))
                    out.emplace_back(axis, cut);
            }
        }
        return out;
    }
};

std::optional<AxisChoice> axis_choice(const ScalarBody& body, const ScalarNode& n) {
    if (n.op != ScalarOp::Select) return std::nullopt;
    const auto c = index_condition(body, n.a);
    if (!c) return std::nullopt;
    AxisChoice out;
    Expr rest = c->expression;
    for (const Var v : variables(c->expression)) {
        const auto linear = linear_in(rest, v);
        if (v.kind != VarKind::Axis || !linear || !linear->coefficient.is_constant()) return std::nullopt;
        if (const int64_t k = linear->coefficient.constant(); k != 0) out.terms.emplace_back(v.id, k);
        rest = linear->rest;
    }
    if (out.terms.empty() || !rest.is_constant()) return std::nullopt;
    out.least = -rest.constant();
    out.above = !c->negated;
    return out;
}

class Choices {
  public:
    explicit Choices(const ScalarBody& body) : body_(body) {
        for (const ScalarNode& n : body.nodes()) {
            of_.push_back(axis_choice(body, n));
            any_ = any_ || of_.back().has_value();
        }
    }
    bool any() const { return any_; }
    const std::vector<std::optional<AxisChoice>>& all() const { return of_; }

    /// Calls `f` with each node that is evaluated if axis a has the range `range(a)`, [from, to).
    template <class Range, class F>
    void each_needed(const Range& range, const F& f) const {
        std::vector<char> seen(body_.nodes().size(), 0);
        std::vector<ScalarId> open{body_.root()};
        while (!open.empty()) {
            const ScalarId id = open.back();
            open.pop_back();
            if (seen[id.index()] != 0) continue;
            seen[id.index()] = 1;
            const ScalarNode& n = body_[id];
            if (const auto& choice = of_[id.index()])
                if (const auto reached = choice->reached(range)) {
                    open.push_back(*reached == choice->above ? n.b : n.c);
                    continue;
                }
            f(id);
            for (const ScalarId k : {n.a, n.b, n.c})
                if (k) open.push_back(k);
        }
    }

  private:
    const ScalarBody& body_;
    std::vector<std::optional<AxisChoice>> of_;
    bool any_ = false;
};

using Piece = std::pair<int64_t, int64_t>;

std::vector<Piece> pieces_of(int64_t extent, const std::vector<int64_t>& cuts) {
    std::vector<Piece> out;
    int64_t from = 0;
    for (const int64_t c : cuts)
        if (c > from && c < extent) {
            out.emplace_back(from, c);
            from = c;
        }
    out.emplace_back(from, extent);
    return out;
}

/// Total number of nodes in the code of all subranges of axis a, cut at these points.
size_t nodes_in_pieces(const ScalarBody& body, size_t a, int64_t extent, const std::vector<Expr>& cuts) {
    std::vector<int64_t> at;
    for (const Expr& c : cuts) at.push_back(c.constant());
    const Choices choices(body);
    size_t n = 0;
    for (const Piece& piece : pieces_of(extent, at))
        choices.each_needed([&](size_t axis) { return axis == a ? piece : Piece(INT64_MIN, INT64_MAX); },
                            [&](ScalarId) { ++n; });
    return n;
}

}  // namespace

std::optional<Needed> needed_between(const TensorExpr& e, const std::vector<int64_t>& extents,
                                     const std::vector<std::vector<int64_t>>& cuts) {
    constexpr size_t kMostBoxes = 4096;
    const Choices choices(e.body);
    if (!choices.any()) return std::nullopt;
    std::vector<std::vector<Piece>> pieces;
    size_t boxes = 1;
    for (size_t a = 0; a < extents.size(); ++a) {
        const bool chosen = std::any_of(choices.all().begin(), choices.all().end(), [&](const auto& c) {
            return c && std::any_of(c->terms.begin(), c->terms.end(), [&](const auto& t) { return t.first == a; });
        });
        pieces.push_back(pieces_of(extents[a], chosen && a < cuts.size() ? cuts[a] : std::vector<int64_t>()));
        boxes *= pieces.back().size();
        if (boxes > kMostBoxes) return std::nullopt;
    }
    Needed out;
    out.nodes.assign(e.body.nodes().size(), 0);
    std::vector<std::vector<std::vector<char>>> read(e.accesses.size());  // by access, axis, subrange
    for (auto& axes : read)
        for (const auto& p : pieces) axes.emplace_back(p.size(), 0);
    std::vector<size_t> at(pieces.size(), 0);
    for (size_t box = 0; box < boxes; ++box) {
        double share = 1;
        for (size_t a = 0, rest = box; a < pieces.size(); rest /= pieces[a].size(), ++a) {
            at[a] = rest % pieces[a].size();
            share *= static_cast<double>(pieces[a][at[a]].second - pieces[a][at[a]].first) /
                     static_cast<double>(std::max<int64_t>(1, extents[a]));
        }
        choices.each_needed([&](size_t a) { return pieces[a][at[a]]; },
                            [&](ScalarId id) {
                                out.nodes[id.index()] += share;
                                const ScalarNode& n = e.body[id];
                                if (n.op != ScalarOp::Access) return;
                                for (size_t a = 0; a < at.size(); ++a) read[n.slot][a][at[a]] = 1;
                            });
    }
    for (const auto& axes : read) {
        out.accesses.emplace_back();
        for (size_t a = 0; a < axes.size(); ++a) {
            int64_t points = 0;
            for (size_t p = 0; p < axes[a].size(); ++p)
                if (axes[a][p] != 0) points += pieces[a][p].second - pieces[a][p].first;
            out.accesses.back().push_back(static_cast<double>(points) /
                                          static_cast<double>(std::max<int64_t>(1, extents[a])));
        }
    }
    return out;
}

std::vector<std::vector<int64_t>> choice_cuts(const TensorExpr& e) {
    std::vector<std::vector<int64_t>> out(e.extents.size());
    for (const ScalarNode& n : e.body.nodes())
        if (const auto c = axis_choice(e.body, n))
            for (const auto& [axis, cut] : c->cuts(e.extents)) out[axis].push_back(cut);
    for (std::vector<int64_t>& cuts : out) {
        std::sort(cuts.begin(), cuts.end());
        cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    }
    return out;
}

std::optional<IndexComparison> index_condition(const ScalarBody& body, ScalarId id) {
    const ScalarNode& n = body[id];
    if (n.op != ScalarOp::Lt && n.op != ScalarOp::Le && n.op != ScalarOp::Gt && n.op != ScalarOp::Ge)
        return std::nullopt;
    const auto side = [&](ScalarId k) -> std::optional<Expr> {
        if (body[k].op == ScalarOp::Index) return body[k].index;
        if (body[k].op == ScalarOp::Const && !is_float(body[k].dtype)) return Expr(body[k].int_value);
        return std::nullopt;
    };
    const auto x = side(n.a), y = side(n.b);
    if (!x || !y) return std::nullopt;
    switch (n.op) {
        case ScalarOp::Lt:
            return IndexComparison{*x - *y, true};
        case ScalarOp::Le:
            return IndexComparison{*y - *x, false};
        case ScalarOp::Gt:
            return IndexComparison{*y - *x, true};
        default:
            return IndexComparison{*x - *y, false};
    }
}

int64_t cut_beside_vectors(int64_t cut, int64_t extent, int64_t lanes) {
    if (cut < lanes) return lanes;
    return extent - cut < lanes ? cut / lanes * lanes : cut;
}

std::vector<std::vector<Expr>> choose_cuts(const CutQuestion& q) {
    const TensorExpr& e = *q.expr;
    std::vector<Expr> conditions;
    for (size_t i = 0; i < e.accesses.size(); ++i)
        if (!q.checked[i]) conditions.insert(conditions.end(), e.accesses[i].valid.begin(), e.accesses[i].valid.end());
    for (const ScalarNode& n : e.body.nodes())
        if (n.op == ScalarOp::Select)
            if (const auto c = index_condition(e.body, n.a)) conditions.push_back(c->expression);
    const size_t size = q.tile_points * (e.body.nodes().size() + e.epilogue.nodes().size());
    std::vector<std::vector<Expr>> out(e.extents.size());
    size_t segments = 1;
    for (size_t a = 0; a < e.spatial; ++a) {
        if (!q.may_cut[a]) continue;
        std::vector<Expr> cuts;
        for (const Expr& condition : conditions) {
            auto cut = cut_of(condition, a, *q.ranges);
            if (cut && prove_nonnegative(-*cut, *q.ranges)) continue;
            if (cut && q.vector_axis == a && cut->is_constant() && e.extents[a].is_constant())
                cut = cut_beside_vectors(cut->constant(), e.extents[a].constant(), q.lanes);
            if (!cut || prove_nonnegative(*cut - e.extents[a], *q.ranges)) continue;
            if (std::find(cuts.begin(), cuts.end(), *cut) == cuts.end()) cuts.push_back(*cut);
        }
        const size_t pieces = segments * (cuts.size() + 1);
        if (cuts.empty() || pieces > kMostSegments) continue;
        std::sort(cuts.begin(), cuts.end(), [](Expr x, Expr y) {
            if (x.is_constant() != y.is_constant()) return x.is_constant();
            return x.is_constant() && x.constant() < y.constant();
        });
        // A subrange of a concatenation has the code of one operand.
        size_t code = pieces * size;
        if (code > kMostSegmentCode && e.extents[a].is_constant() && cuts.back().is_constant())
            code = segments * q.tile_points *
                   (nodes_in_pieces(e.body, a, e.extents[a].constant(), cuts) +
                    (cuts.size() + 1) * e.epilogue.nodes().size());
        if (code > kMostSegmentCode) continue;
        segments = pieces;
        out[a] = std::move(cuts);
    }
    return out;
}

}  // namespace tilewright
