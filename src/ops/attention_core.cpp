#include "ops/attention_core.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/scalar_math.h"
#include "ops/softmax.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ValueId scaled(Builder& b, ValueId s, const Scoring& how) {
    if (how.scale == 1) return s;
    return b.binary(ScalarOp::Mul, s, how.scale);
}

ValueId capped(Builder& b, ValueId s, const Scoring& how) {
    if (how.softcap == 0) return s;
    return b.map(
        {s}, b.dtype(s),
        [&](ScalarBody& body, Ids x) -> ScalarId { return (Sx(body, x[0]) / how.softcap).tanh() * how.softcap; },
        "softcap");
}

/// The expression of masked scores, while it is built: scores [batch, ..., query, key].
class Masking {
  public:
    Masking(Builder& b, ValueId scores) : b_(b), t_(b.dtype(scores)) {
        e_.extents = b.shape(scores);
        e_.spatial = e_.extents.size();
        query_ = axis(e_.spatial - 2);
        key_ = axis(e_.spatial - 1);
        std::vector<Expr> own;
        for (size_t k = 0; k < e_.spatial; ++k) own.push_back(axis(k));
        score_.emplace(read(scores, std::move(own)));
    }

    void add_mask(ValueId mask) {
        const Dims& m_shape = b_.shape(mask);
        for (size_t k = 0; k < m_shape.size(); ++k) {
            const Expr d = e_.extents[e_.spatial - m_shape.size() + k];
            b_.require_spread(m_shape[k], d,
                              fmt::format("a mask of shape {} does not broadcast to {}", to_string(m_shape),
                                          to_string(std::span<const Expr>(e_.extents))));
        }
        const Sx m = read(mask, b_.broadcast_index(b_.shape(mask), e_.extents));
        score_ = b_.dtype(mask) == DType::Bool ? m.choose(*score_, never()) : *score_ + m.cast(compute_type(t_));
    }

    void add_causal(const Scoring& how) {
        Expr room = query_ + *how.causal - key_;  // masked out if negative
        if (how.last_query_sees_all) room = max(room, query_ + 1 - e_.extents[e_.spatial - 2]);
        keep_where(index(room).apply(ScalarOp::Ge, 0));
    }

    void add_past(const Scoring& how) {
        const Sx last = read(*how.past, {axis(0)}).cast(DType::I64) + index(query_);
        keep_where(index(key_).apply(ScalarOp::Le, last));
        if (how.window > 0) keep_where(index(key_ + how.window).apply(ScalarOp::Gt, last));
    }

    void add_lengths(const Scoring& how) {
        const Sx length = read(*how.lengths, {axis(0)}).cast(DType::I64);
        keep_where(index(key_).apply(ScalarOp::Lt, length));
        if (!how.causal_at_the_end) return;
        const Sx last = length + index(query_ - e_.extents[e_.spatial - 2]);  // key <= query + length - queries
        keep_where(index(key_).apply(ScalarOp::Le, last));
    }

    ValueId finish() {
        e_.body.set_root(*score_);
        return b_.emit(std::move(e_), t_, "masked");
    }

  private:
    Sx read(ValueId v, std::vector<Expr> at) {
        e_.accesses.push_back({v, std::move(at), {}, 0});
        return {e_.body, e_.body.access(static_cast<uint32_t>(e_.accesses.size() - 1), b_.dtype(v))};
    }
    Sx index(Expr i) { return {e_.body, e_.body.index(i)}; }
    Sx never() const { return score_->of(-kInfinity); }
    void keep_where(Sx condition) { score_ = condition.choose(*score_, never()); }

    Builder& b_;
    DType t_;
    TensorExpr e_;
    Expr query_, key_;
    std::optional<Sx> score_;
};

/// Scores [batch, ..., query, key] where the masks allow, -infinity elsewhere; a numeric mask is added.
ValueId masked(Builder& b, ValueId s, const Scoring& how) {
    if (!how.mask && !how.causal && !how.past && !how.lengths) return s;
    Masking m(b, s);
    if (how.mask) m.add_mask(*how.mask);
    if (how.causal) m.add_causal(how);
    if (how.past) m.add_past(how);
    if (how.lengths) m.add_lengths(how);
    return m.finish();
}

/// exp(x - m) / (exp(sink - m) + sum exp(x - m))   with m = max(sink, max(x)), along the last dimension.
ValueId softmax_with_sinks(Builder& b, ValueId x, ValueId sinks, DType to) {
    const DType t = b.dtype(x);
    const ValueId largest = b.map(
        {b.reduce(Reducer::Max, x, {-1}, true, "max"), sinks}, t,
        [&](ScalarBody& body, Ids v) -> ScalarId { return Sx(body, v[0]).max(Sx(body, v[1]).cast(t)); }, "largest");
    const ValueId p = b.map(
        {x, largest}, t, [](ScalarBody& body, Ids v) -> ScalarId { return (Sx(body, v[0]) - Sx(body, v[1])).exp(); },
        "exp");
    const ValueId sum = b.reduce(Reducer::Sum, p, {-1}, true, "sum");
    return b.map(
        {p, sum, sinks, largest}, to,
        [&](ScalarBody& body, Ids v) -> ScalarId {
            return Sx(body, v[0]) / (Sx(body, v[1]) + (Sx(body, v[2]).cast(t) - Sx(body, v[3])).exp());
        },
        "softmax");
}

/// x[i] * cos - x[i + half] * sin for the first half of the features, x[i] * cos + x[i - half] * sin for the second;
/// interleaved: for the pairs 2 j and 2 j + 1. x is [batch, .., .., size] with positions along `along`; the tables are
/// [batch, positions, half or more].
ValueId rotate(Builder& b, ValueId x, size_t along, ValueId cosines, ValueId sines, Expr size, bool interleaved) {
    TensorExpr e;
    e.extents = b.shape(x);
    e.extents[3] = size;
    e.spatial = 4;
    const DType t = b.dtype(x);
    const Expr i = axis(3), half = floor_div(size, 2);
    const Expr second = interleaved ? mod(i, 2) : floor_div(i, half);  // 1 for the second of a pair
    const Expr partner = interleaved ? i + 1 - second * 2 : mod(i + half, size);
    const Expr angle = interleaved ? floor_div(i, 2) : mod(i, half);
    const auto feature = [&](Expr at) { return Access{x, {axis(0), axis(1), axis(2), at}, {}, 0}; };
    const auto table = [&](ValueId v) {
        const bool shared = b.shape(v)[0].is_constant(1);
        return Access{v, {shared ? Expr(0) : axis(0), axis(along), angle}, {}, 0};
    };
    e.accesses = {feature(i), feature(partner), table(cosines), table(sines)};
    const auto read = [&](uint32_t slot, ValueId v) { return Sx(e.body, e.body.access(slot, b.dtype(v))); };
    const Sx own = read(0, x) * read(2, cosines), other = read(1, x) * read(3, sines);
    const Sx first = Sx(e.body, e.body.index(second)).apply(ScalarOp::Eq, 0);
    e.body.set_root(first.choose(own - other, own + other));
    return b.emit(std::move(e), t, "rotate");
}

}  // namespace

ValueId split_heads(NodeContext& c, ValueId v, int64_t heads) {
    const Dims s = c.b.shape(v);
    const std::string misfit = fmt::format("{} features do not divide into {} heads", s[2].text(), heads);
    c.require(heads >= 1, misfit);
    c.b.require_multiple(s[2], heads, misfit, "features");
    return c.b.transpose(c.b.reshape(v, {s[0], s[1], heads, floor_div(s[2], heads)}), {0, 2, 1, 3});
}

ValueId merge_heads(Builder& b, ValueId v) {
    const Dims s = b.shape(v);
    return b.reshape(b.transpose(v, {0, 2, 1, 3}), {s[0], s[2], s[1] * s[3]});
}

ValueId Heads::grouped(Builder& b, ValueId v) const {
    if (group == 1) return v;
    const Dims& s = b.shape(v);
    return b.reshape(v, {s[0], kv, group, s[2], s[3]});
}

ValueId Heads::flat(Builder& b, ValueId v) const {
    if (group == 1) return v;
    const Dims& s = b.shape(v);
    return b.reshape(v, {s[0], kv * group, s[3], s[4]});
}

ValueId Heads::mask(NodeContext& c, ValueId v) const {
    while (c.b.rank(v) < 4) v = c.b.unsqueeze(v, {0});
    if (group == 1) return v;
    const Dims& s = c.b.shape(v);
    const bool shared = s[1].is_constant(1);
    return c.b.reshape(v, {s[0], shared ? Expr(1) : kv, shared ? Expr(1) : Expr(group), s[2], s[3]});
}

Attended attend(Builder& b, const Heads& heads, ValueId q, ValueId k, ValueId v, const Scoring& how, DType wide,
                DType out) {
    const bool grouped = heads.group > 1;
    const DType t = compute_type(b.dtype(q));
    Attended a;
    const ValueId products =
        b.contract(grouped ? "bhgqd,bhkd->bhgqk" : "bhqd,bhkd->bhqk", heads.grouped(b, q), k, t, "scores");
    a.raw = scaled(b, b.cast(products, wide), how);
    a.capped = capped(b, a.raw, how);
    a.scores = masked(b, a.capped, how);
    // By ONNX's definition weights are rounded to the queries' type: both factors are of 16 bits where those are.
    const DType narrow = b.dtype(q);
    a.weights = how.sinks ? softmax_with_sinks(b, a.scores, *how.sinks, narrow)
                          : softmax(b, a.scores, {static_cast<int64_t>(b.rank(a.scores)) - 1}, narrow);
    a.y = b.contract(grouped ? "bhgqk,bhkv->bhgqv" : "bhqk,bhkv->bhqv", a.weights, v, out, "weighted");
    return a;
}

ValueId zero_where_all_masked(Builder& b, ValueId v, ValueId scores) {
    const ValueId largest = b.reduce(Reducer::Max, scores, {-1}, true, "max");
    return b.map(
        {v, largest}, b.dtype(v),
        [&](ScalarBody& body, Ids x) -> ScalarId {
            const Sx value(body, x[0]);
            return Sx(body, x[1]).apply(ScalarOp::Eq, -kInfinity).choose(value.of(0), value);
        },
        "row");
}

ValueId rotated(NodeContext& c, ValueId x, size_t along, ValueId cosines, ValueId sines, Expr size, bool interleaved) {
    c.b.require_multiple(size, 2, fmt::format("{} features do not form pairs", size.text()), "features");
    const Dims s = c.b.shape(x);
    c.require(c.b.rank(cosines) == 3 && c.b.rank(sines) == 3,
              fmt::format("tables of shape {} do not fit an input of shape {}", to_string(c.b.shape(cosines)),
                          to_string(c.shape(0))));
    for (const ValueId table : {cosines, sines}) {
        const Dims& t = c.b.shape(table);
        const std::string misfit =
            fmt::format("tables of shape {} do not fit an input of shape {}", to_string(t), to_string(c.shape(0)));
        if (!t[0].is_constant(1)) c.b.require_equal(t[0], s[0], misfit);
        c.b.require_at_least(t[1], s[along], misfit);
        c.b.require_at_least(t[2], floor_div(size, 2), misfit);
    }
    c.b.require_at_least(s[3], size, fmt::format("{} of {} features are rotated", size.text(), s[3].text()),
                         "features");
    const ValueId y = rotate(c.b, x, along, cosines, sines, size, interleaved);
    if (size == s[3]) return y;
    const std::vector<ValueId> parts = {y, c.b.slice(x, 3, size, s[3] - size)};
    return c.b.concat(parts, 3);
}

double attention_scale(const NodeContext& c, Expr size, bool zero_is_default) {
    const auto given = static_cast<double>(c.node.attr_float("scale", 0));
    if (c.node.has("scale") && !(zero_is_default && given == 0)) return given;
    if (!size.is_constant()) c.unsupported("the heads' size must be known before the model runs");
    return 1 / std::sqrt(static_cast<double>(size.constant()));
}

}  // namespace tilewright
