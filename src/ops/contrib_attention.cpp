// Attention of com.microsoft with as many key heads as query heads: Attention, QAttention, MultiHeadAttention; and its
// RotaryEmbedding.
//
//     y = softmax(q k^T * scale + mask + bias) v
//
// Integer masks become addends: 0 where they allow a key, mask_filter_value elsewhere. Keys that `unidirectional`
// excludes get -infinity.

#include <algorithm>

#include "base/error.h"
#include "ops/attention_core.h"
#include "ops/families.h"
#include "ops/quantised.h"
#include "ops/scalar_math.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

/// Sizes that attributes give stay below this, so that their products fit 64 bits.
constexpr int64_t kMost = int64_t{1} << 31;

int64_t heads_attr(const NodeContext& c) {
    const int64_t heads = c.node.attr_int("num_heads", 0);
    c.require(heads >= 1 && heads < kMost, fmt::format("attribute 'num_heads' should be positive, and is {}", heads));
    return heads;
}

// --- masks

/// The numbers of queries and keys that a mask is for.
struct MaskShape {
    Expr batch, queries, past, keys;
};

double filter_value(const NodeContext& c) {
    return static_cast<double>(c.node.attr_float("mask_filter_value", -10000.0F));
}

/// 0 where mask > 0, else the filter value.
ValueId addend_of_mask(NodeContext& c, ValueId mask, DType t) {
    const double filter = filter_value(c);
    return c.b.map(
        {mask}, t,
        [&](ScalarBody& body, Ids v) -> ScalarId {
            const Sx keep = Sx(body, v[0]) > 0;
            const DType wide = compute_type(t);
            return keep.choose(Sx(body, number(body, wide, 0)), Sx(body, number(body, wide, filter)));
        },
        "mask");
}

/// [batch] ends, or [2 * batch] ends and then starts: keys from the end on and before the start are filtered. Which of
/// the two it is may be known at run time only.
ValueId addend_of_ends(NodeContext& c, ValueId ends, const MaskShape& m, bool may_have_starts, DType t) {
    TensorExpr e;
    e.extents = {m.batch, 1, 1, m.keys};
    e.spatial = 4;
    e.accesses = {{ends, {axis(0)}, {}, 0}};
    const Sx key(e.body, e.body.index(axis(3)));
    Sx keep = key.apply(ScalarOp::Lt, Sx(e.body, e.body.access(0, DType::I32)).cast(DType::I64));
    if (may_have_starts) {
        const Expr at = axis(0) + m.batch, beyond = c.b.count(ends) - 1 - at;
        e.accesses.push_back({ends, {at}, {beyond}, 0});  // without starts: from 0
        const Sx start = Sx(e.body, e.body.access(1, DType::I32)).cast(DType::I64);
        keep = keep.apply(ScalarOp::BitAnd, key.apply(ScalarOp::Ge, start));
    }
    const DType wide = compute_type(t);
    e.body.set_root(
        keep.choose(Sx(e.body, number(e.body, wide, 0)), Sx(e.body, number(e.body, wide, filter_value(c)))));
    return c.b.emit(std::move(e), t, "mask");
}

/// Integer masks [batch] (lengths), [2 batch] (ends and starts), [batch, keys], [batch, queries, keys] and
/// [batch, 1, n, n] (whose row is the position of the query)   ->   [batch, 1, queries or 1, keys], added.
std::optional<ValueId> integer_mask(NodeContext& c, size_t input, const MaskShape& m, bool ends_and_starts, DType t) {
    if (!c.has(input)) return std::nullopt;
    const Dims s = c.shape(input);
    const std::string misfit = fmt::format("a mask of shape {} does not fit {} examples, {} queries and {} keys",
                                           to_string(s), m.batch.text(), m.queries.text(), m.keys.text());
    c.require(!s.empty() && s.size() <= 4, misfit);
    c.require(c.dtype(input) == DType::I32, fmt::format("a mask of type i32 is expected as input {}, and it is {}",
                                                        input, to_string(c.dtype(input))));
    ValueId mask = c.in(input);
    if (s.size() == 1) {
        const bool may_have_starts = ends_and_starts && !(s[0] == m.batch);
        if (may_have_starts)
            c.b.require_at_least(s[0], m.batch, misfit);
        else
            c.b.require_equal(s[0], m.batch, misfit);
        if (s[0].is_constant() && m.batch.is_constant())
            c.require(s[0] == m.batch || (ends_and_starts && s[0] == m.batch * 2), misfit);
        return addend_of_ends(c, mask, m, may_have_starts, t);
    }
    if (s.size() == 2 && s[1].is_constant(1) && !m.keys.is_constant(1)) {
        c.b.require_spread(s[0], m.batch, misfit);
        return std::nullopt;  // equal for all keys
    }
    c.b.require_equal(s[0], m.batch, misfit);
    if (s.size() == 4) {
        c.b.require_equal(s[1], 1, misfit);
        c.b.require_at_least(s[2], m.past + m.queries, misfit);
        c.b.require_at_least(s[3], m.keys, misfit);
        mask = c.b.slice(c.b.slice(mask, 2, m.past, m.queries), 3, 0, m.keys);
        return addend_of_mask(c, mask, t);
    }
    c.b.require_equal(s.back(), m.keys, misfit);
    if (s.size() == 3) c.b.require_equal(s[1], m.queries, misfit);
    return addend_of_mask(c, c.b.reshape(mask, {s[0], 1, s.size() == 3 ? s[1] : Expr(1), m.keys}), t);
}

/// The mask and the bias [batch or 1, heads or 1, queries, keys] at input `bias`, added.
std::optional<ValueId> with_bias(NodeContext& c, std::optional<ValueId> mask, size_t bias, const MaskShape& m) {
    if (!c.has(bias)) return mask;
    const Dims s = c.shape(bias);
    const std::string misfit =
        fmt::format("an attention bias of shape {} does not fit {} examples, {} queries and {} keys", to_string(s),
                    m.batch.text(), m.queries.text(), m.keys.text());
    c.require(s.size() == 4, misfit);
    c.b.require_spread(s[0], m.batch, misfit);
    c.b.require_equal(s[2], m.queries, misfit);
    c.b.require_equal(s[3], m.keys, misfit);
    return mask ? c.b.binary(ScalarOp::Add, *mask, c.in(bias)) : c.in(bias);
}

// --- the attention

struct Projections {
    ValueId q, k, v;  ///< [batch, heads, length, size]; keys and values include the past
    Expr past = 0;    ///< number of past keys
};

/// Where the inputs are.
struct MaskInputs {
    size_t mask, bias;
    bool ends_and_starts;
};

/// Returns the result [batch, length, heads * size] and the scores.
std::pair<ValueId, ValueId> attend_all(NodeContext& c, const Projections& in, const MaskInputs& inputs) {
    const DType t = c.b.dtype(in.q);
    Scoring how;
    how.scale = attention_scale(c, c.b.shape(in.q)[3], true);
    const Dims q = c.b.shape(in.q);
    const MaskShape m{q[0], q[2], in.past, c.b.shape(in.k)[2]};
    how.mask = with_bias(c, integer_mask(c, inputs.mask, m, inputs.ends_and_starts, t), inputs.bias, m);
    if (c.node.attr_int("unidirectional", 0) != 0) {
        how.causal = in.past;
        how.last_query_sees_all = !(m.keys == in.past + m.queries);
    }
    const Heads heads{c.b.shape(in.k)[1], 1};
    const Attended a = attend(c.b, heads, in.q, in.k, in.v, how, compute_type(t), t);
    return {merge_heads(c.b, a.y), a.scores};
}

/// Three ranges of the features [.., q + k + v], as heads.
Projections split_projections(NodeContext& c, ValueId all, int64_t heads) {
    const Expr columns = c.b.shape(all)[2];
    const std::vector<int64_t> sizes = c.node.attr_ints("qkv_hidden_sizes", {});
    c.require(sizes.empty() || sizes.size() == 3,
              fmt::format("attribute 'qkv_hidden_sizes' should have 3 numbers, and has {}", sizes.size()));
    Dims widths(3, floor_div(columns, 3));
    const std::string misfit = fmt::format("weights for {} features do not divide into query, key and value, {}",
                                           columns.text(), to_string(std::span(sizes)));
    for (size_t k = 0; k < sizes.size(); ++k) {
        c.require(sizes[k] >= 1 && sizes[k] < kMost && sizes[k] % heads == 0,
                  fmt::format("attribute 'qkv_hidden_sizes' should have multiples of {}, and is {}", heads,
                              to_string(std::span(sizes))));
        widths[k] = sizes[k];
    }
    c.b.require_equal(widths[0] + widths[1] + widths[2], columns, misfit, "features");
    c.b.require_equal(widths[0], widths[1], misfit, "features");
    Projections p;
    p.q = split_heads(c, c.b.slice(all, 2, 0, widths[0]), heads);
    p.k = split_heads(c, c.b.slice(all, 2, widths[0], widths[1]), heads);
    p.v = split_heads(c, c.b.slice(all, 2, widths[0] + widths[1], widths[2]), heads);
    return p;
}

/// past [2, batch, heads, length, size] in front of keys and values; their new state is output 1.
void with_past(NodeContext& c, Projections& p, size_t past) {
    c.require(c.node.attr_int("past_present_share_buffer", 0) == 0,
              "attribute 'past_present_share_buffer' should be 0: past and present are different tensors");
    if (c.has(past)) {
        const Dims s = c.shape(past), k = c.b.shape(p.k);
        const std::string misfit =
            fmt::format("past of shape {} does not fit keys of shape {}", to_string(s), to_string(k));
        c.require(s.size() == 5, misfit);
        c.b.require_equal(s[0], 2, misfit);
        c.b.require_equal(s[1], k[0], misfit);
        c.b.require_equal(s[2], k[1], misfit);
        c.b.require_equal(s[4], k[3], misfit);
        c.b.require_equal(s[4], c.b.shape(p.v)[3], misfit);
        const auto side = [&](int64_t n, ValueId now) {
            const std::vector<ValueId> parts = {c.b.squeeze(c.b.slice(c.in(past), 0, n, 1), {0}), now};
            return c.b.concat(parts, 2);
        };
        p.k = side(0, p.k);
        p.v = side(1, p.v);
        p.past = s[3];
    }
    if (!c.uses_output(1)) return;
    const std::vector<ValueId> both = {c.b.unsqueeze(p.k, {0}), c.b.unsqueeze(p.v, {0})};
    c.out(1, c.b.concat(both, 0));
}

void require_no_rotation(NodeContext& c) {
    if (c.node.attr_int("do_rotary", 0) != 0) c.unsupported("attribute 'do_rotary' is not implemented");
}

/// Inputs: x, weights [features, q + k + v], bias, mask, past, attention bias.
void packed_attention(NodeContext& c) {
    const int64_t heads = heads_attr(c);
    require_no_rotation(c);
    c.require(c.rank(0) == 3 && c.rank(1) == 2,
              fmt::format("an input of rank 3 and a matrix of weights are expected, and the shapes are {} and {}",
                          to_string(c.shape(0)), to_string(c.shape(1))));
    ValueId all = c.b.matmul(c.in(0), c.in(1));
    if (c.has(2)) {
        const std::string misfit = fmt::format("a bias of shape {} does not fit weights of shape {}",
                                               to_string(c.shape(2)), to_string(c.shape(1)));
        c.require(c.rank(2) == 1, misfit);
        c.b.require_equal(c.shape(2)[0], c.shape(1)[1], misfit);
        all = c.b.binary(ScalarOp::Add, all, c.in(2));
    }
    Projections p = split_projections(c, all, heads);
    with_past(c, p, 4);
    c.out(0, attend_all(c, p, {3, 5, true}).first);
}

/// Inputs: x, weights, bias, scales of x and of the weights, mask, zero points of x and of the weights, past.
void q_attention(NodeContext& c) {
    constexpr size_t kNone = 99;
    const int64_t heads = heads_attr(c);
    require_no_rotation(c);
    c.require(c.rank(0) == 3 && c.rank(1) == 2,
              fmt::format("an input of rank 3 and a matrix of weights are expected, and the shapes are {} and {}",
                          to_string(c.shape(0)), to_string(c.shape(1))));
    Projections p = split_projections(c, quantised_projection(c), heads);
    with_past(c, p, 8);
    c.out(0, attend_all(c, p, {5, kNone, true}).first);
}

// --- MultiHeadAttention

/// x + the bias (input 3) from `first` on, as many numbers as x has features.
ValueId biased_features(NodeContext& c, ValueId x, Expr first) {
    if (!c.has(3)) return x;
    return c.b.binary(ScalarOp::Add, x, c.b.slice(c.in(3), 0, first, c.b.shape(x)[2]));
}

/// Member `k` of [batch, length, heads, n, size]   ->   [batch, length, heads * size]
ValueId member(NodeContext& c, size_t input, int64_t k) {
    const Dims s = c.shape(input);
    return c.b.reshape(c.b.slice(c.in(input), 3, k, 1), {s[0], s[1], s[2] * s[4]});
}

void require_members(NodeContext& c, size_t input, int64_t heads, int64_t n) {
    const Dims s = c.shape(input);
    const std::string misfit =
        fmt::format("input {} of rank 5 should have shape [batch, length, {}, {}, size], and has {}", input, heads, n,
                    to_string(s));
    c.require(s.size() == 5, misfit);
    c.b.require_equal(s[2], heads, misfit);
    c.b.require_equal(s[3], n, misfit);
}

/// Query, key and value [batch, length, heads * size] of the forms: three tensors; query and [.., heads, 2, size]; one
/// [.., heads, 3, size]; query, and key and value that are [batch, heads, length, size] already.
Projections projections(NodeContext& c, int64_t heads) {
    std::vector<ValueId> parts;
    if (!c.has(1)) {
        require_members(c, 0, heads, 3);
        c.require(!c.has(2), "packed query, key and value (input 0) exclude a value (input 2)");
        for (int64_t k = 0; k < 3; ++k) parts.push_back(member(c, 0, k));
    } else {
        c.require(c.rank(0) == 3,
                  fmt::format("a query of rank 3 is expected, and its shape is {}", to_string(c.shape(0))));
        parts.push_back(c.in(0));
        if (c.rank(1) == 5) {
            require_members(c, 1, heads, 2);
            c.require(!c.has(2), "packed key and value (input 1) exclude a value (input 2)");
            for (int64_t k = 0; k < 2; ++k) parts.push_back(member(c, 1, k));
        } else {
            const size_t rank = c.rank(1);
            c.require((rank == 3 || rank == 4) && c.rank(2) == rank,
                      fmt::format("key and value should have one rank, 3 or 4, and have shapes {} and {}",
                                  to_string(c.shape(1)), to_string(c.shape(2))));
            parts.push_back(c.in(1));
            parts.push_back(c.in(2));
        }
    }
    const bool split = c.b.rank(parts[1]) == 4;
    const Expr width = c.b.shape(parts[0])[2];
    if (c.has(3)) {
        const Expr rest = split ? c.b.shape(parts[1])[1] * (c.b.shape(parts[1])[3] + c.b.shape(parts[2])[3])
                                : c.b.shape(parts[1])[2] + c.b.shape(parts[2])[2];
        const std::string misfit =
            fmt::format("a bias of shape {} does not fit query, key and value", to_string(c.shape(3)));
        c.require(c.rank(3) == 1, misfit);
        c.b.require_equal(c.shape(3)[0], width + rest, misfit);
    }
    Projections p;
    p.q = split_heads(c, biased_features(c, parts[0], 0), heads);
    p.k = split ? parts[1] : split_heads(c, biased_features(c, parts[1], width), heads);
    p.v = split ? parts[2] : split_heads(c, biased_features(c, parts[2], width * 2), heads);
    const Dims q = c.b.shape(p.q), k = c.b.shape(p.k), v = c.b.shape(p.v);
    const std::string misfit = fmt::format("query, key and value of shapes {}, {} and {} do not fit", to_string(q),
                                           to_string(k), to_string(v));
    for (const size_t d : {size_t{0}, size_t{1}, size_t{3}}) c.b.require_equal(q[d], k[d], misfit);
    for (const size_t d : {size_t{0}, size_t{1}, size_t{2}}) c.b.require_equal(k[d], v[d], misfit);
    return p;
}

/// past [batch, heads, length, size] in front of keys (or values).
ValueId behind_past(NodeContext& c, size_t past, ValueId now) {
    const Dims s = c.shape(past), n = c.b.shape(now);
    const std::string misfit =
        fmt::format("past (input {}) of shape {} does not fit {}", past, to_string(s), to_string(n));
    c.require(s.size() == 4, misfit);
    for (const size_t d : {size_t{0}, size_t{1}, size_t{3}}) c.b.require_equal(s[d], n[d], misfit);
    const std::vector<ValueId> parts = {c.in(past), now};
    return c.b.concat(parts, 2);
}

/// Inputs: query, key, value, bias, mask, attention bias, past key, past value. Outputs: y, keys, values, scores.
void multi_head_attention(NodeContext& c) {
    const int64_t heads = heads_attr(c);
    if (c.has(8) || c.has(9)) c.unsupported("a cache shared by past and present (inputs 8 and 9) is not implemented");
    Projections p = projections(c, heads);
    c.require(c.has(6) == c.has(7), "past_key and past_value (inputs 6 and 7) belong together");
    if (c.has(6)) {
        p.past = c.shape(6).size() == 4 ? c.shape(6)[2] : Expr(0);
        p.k = behind_past(c, 6, p.k);
        p.v = behind_past(c, 7, p.v);
        c.b.require_equal(c.b.shape(p.k)[2], c.b.shape(p.v)[2], "past_key and past_value have different lengths");
    }
    const auto [y, scores] = attend_all(c, p, {4, 5, false});
    c.out(0, y);
    c.out(1, p.k);
    c.out(2, p.v);
    if (c.uses_output(3)) c.out(3, c.b.cast(scores, c.dtype(0)));
}

// --- RotaryEmbedding

/// Inputs: x, positions ([batch, length], or the first of all), cosines and sines [positions, angles].
void rotary_embedding(NodeContext& c) {
    const size_t rank = c.rank(0);
    c.require(rank == 3 || rank == 4,
              fmt::format("an input of rank 3 or 4 is expected, and its shape is {}", to_string(c.shape(0))));
    if (c.node.attr_int("is_packed_batching", 0) != 0)
        c.unsupported("attribute 'is_packed_batching' is not implemented");
    c.require(c.rank(2) == 2 && c.rank(3) == 2,
              fmt::format("tables of rank 2 are expected, and their shapes are {} and {}", to_string(c.shape(2)),
                          to_string(c.shape(3))));
    const Expr all = c.shape(2)[1] * 2;
    const int64_t requested = c.node.attr_int("rotary_embedding_dim", 0), given = c.node.attr_int("num_heads", 0);
    c.require(requested >= 0 && given >= 0 && requested < kMost && given < kMost,
              "attributes 'rotary_embedding_dim' and 'num_heads' should not be negative or above 2^31");
    ValueId x = c.in(0);
    const Dims s = c.shape(0);
    const size_t along = rank == 3 ? 1 : 2;
    if (rank == 3) {  // [batch, positions, heads, size]
        c.require(requested == 0 || given > 0, "attribute 'rotary_embedding_dim' needs 'num_heads'");
        const Expr size = given > 0 ? floor_div(s[2], given) : all;
        const Expr heads = given > 0 ? Expr(given) : floor_div(s[2], all);
        c.b.require_equal(heads * size, s[2],
                          fmt::format("{} features do not divide into heads of {}", s[2].text(), size.text()),
                          "features");
        x = c.b.reshape(x, {s[0], s[1], heads, size});
    }
    ValueId positions = c.in(1);
    const Expr length = s[along];
    if (c.rank(1) == 2) {
        const std::string misfit = fmt::format("position_ids of shape {} do not fit an input of shape {}",
                                               to_string(c.shape(1)), to_string(s));
        c.b.require_equal(c.shape(1)[0], s[0], misfit);
        c.b.require_equal(c.shape(1)[1], length, misfit);
    } else {
        c.require(
            c.b.count(positions).is_constant(1),
            fmt::format("position_ids should have shape [1] or [batch, length], and have {}", to_string(c.shape(1))));
        TensorExpr e;
        e.extents = {1, length};
        e.spatial = 2;
        e.accesses = {{c.b.reshape(positions, {1}), {0}, {}, 0}};
        e.body.set_root(Sx(e.body, e.body.access(0, DType::I64)) + Sx(e.body, e.body.index(axis(1))));
        positions = c.b.emit(std::move(e), DType::I64, "positions");
    }
    const ValueId cosines = c.b.gather(c.in(2), positions, 0), sines = c.b.gather(c.in(3), positions, 0);
    const ValueId y = rotated(c, x, along, cosines, sines, requested > 0 ? Expr(requested) : all,
                              c.node.attr_int("interleaved", 0) != 0);
    c.out(0, c.b.reshape(y, s));
}

}  // namespace

std::vector<OpLowering> contrib_attention_lowerings() {
    constexpr std::string_view kDomain = "com.microsoft";
    return {
        {kDomain, "Attention", 1, packed_attention},
        {kDomain, "MultiHeadAttention", 1, multi_head_attention},
        {kDomain, "QAttention", 1, q_attention},
        {kDomain, "RotaryEmbedding", 1, rotary_embedding},
    };
}

}  // namespace tilewright
