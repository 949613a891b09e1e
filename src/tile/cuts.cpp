#include "tile/cuts.h"

#include <algorithm>

namespace tilewright {

namespace {

constexpr size_t kMostSegments = 72, kMostSegmentCode = 6000;

/// The first point of axis a from which on (or up to which) the condition holds whatever the other axes are.
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

}  // namespace

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
        if (cuts.empty() || pieces > kMostSegments || pieces * size > kMostSegmentCode) continue;
        std::sort(cuts.begin(), cuts.end(), [](Expr x, Expr y) {
            if (x.is_constant() != y.is_constant()) return x.is_constant();
            return x.is_constant() && x.constant() < y.constant();
        });
        segments = pieces;
        out[a] = std::move(cuts);
    }
    return out;
}

}  // namespace tilewright
