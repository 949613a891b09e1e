// GroupQueryAttention of com.microsoft: causal attention over a cache, with rotated queries and keys.
//
// Example b has seqlens_k[b] + 1 keys, of which past = max(0, seqlens_k[b] + 1 - length) come from the cache:
//
//     present[b, h, p] = p < past ? past[b, h, p] : p - past < length ? k[b, h, p - past] : 0
//     y = softmax(cap(q present_k^T * scale) + bias) present_v    over the keys  query + past - window < key <= query +
//     past

#include "base/error.h"
#include "ops/attention_core.h"
#include "ops/families.h"
#include "ops/norm.h"
#include "ops/quantised.h"
#include "ops/scalar_math.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

enum Input : size_t {
    kQuery,
    kKey,
    kValue,
    kPastKey,
    kPastValue,
    kLengths,
    kTotal,
    kCosines,
    kSines,
    kPositions,
    kBias,
    kSinks,
    kKeyScale,
    kValueScale,
    kQueryNorm,
    kKeyNorm,
    kQueryLengths,
};

/// Sizes that attributes give stay below this, so that their products fit 64 bits.
constexpr int64_t kMost = int64_t{1} << 31;

struct GroupedInputs {
    Heads heads;
    ValueId q, k, v;  ///< [batch, heads, length, size], of the new positions
    ValueId past;     ///< I64 [batch]: the number of cached positions
    Expr length, present;
};

/// What this lowering does not implement is refused.
void require_implemented(NodeContext& c) {
    if (c.node.attr_int("kv_cache_bit_width", 8) != 8) c.unsupported("a cache of 4 bits is not implemented");
    if (c.has(kQueryLengths)) c.unsupported("query_seqlens (input 16) is not implemented");
    if (c.node.attr_int("sliding_window_cache", 0) != 0)
        c.unsupported("attribute 'sliding_window_cache' is not implemented");
    if (c.uses_output(3)) c.unsupported("the scores (output 3) are not implemented");
}

/// Query, key and value of the new positions: three inputs, or one with the features of all.
void read_projections(NodeContext& c, GroupedInputs& in) {
    const int64_t heads = c.node.attr_int("num_heads", 0), kv = c.node.attr_int("kv_num_heads", 0);
    c.require(
        heads >= 1 && kv >= 1 && heads < kMost && heads % kv == 0,
        fmt::format("attribute 'num_heads' should be a multiple of 'kv_num_heads', and they are {} and {}", heads, kv));
    in.heads = {kv, heads / kv};
    c.require(c.rank(kQuery) == 3,
              fmt::format("a query of rank 3 is expected, and its shape is {}", to_string(c.shape(kQuery))));
    const Dims s = c.shape(kQuery);
    in.length = s[1];
    c.require(c.has(kKey) == c.has(kValue), "key and value (inputs 1 and 2) belong together");
    if (c.has(kKey)) {
        const std::string misfit = fmt::format("query, key and value of shapes {}, {} and {} do not fit", to_string(s),
                                               to_string(c.shape(kKey)), to_string(c.shape(kValue)));
        const Expr size = floor_div(s[2], heads);
        for (const size_t input : {size_t{kKey}, size_t{kValue}}) {
            c.require(c.rank(input) == 3, misfit);
            c.b.require_equal(c.shape(input)[0], s[0], misfit);
            c.b.require_equal(c.shape(input)[1], s[1], misfit);
            c.b.require_equal(c.shape(input)[2], size * kv, misfit, "features");
        }
        in.q = split_heads(c, c.in(kQuery), heads);
        in.k = split_heads(c, c.in(kKey), kv);
        in.v = split_heads(c, c.in(kValue), kv);
        return;
    }
    const int64_t parts = heads + 2 * kv;
    c.b.require_multiple(s[2], parts, fmt::format("{} features do not divide into {} heads", s[2].text(), parts),
                         "features");
    const Expr size = floor_div(s[2], parts);
    in.q = split_heads(c, c.b.slice(c.in(kQuery), 2, 0, size * heads), heads);
    in.k = split_heads(c, c.b.slice(c.in(kQuery), 2, size * heads, size * kv), kv);
    in.v = split_heads(c, c.b.slice(c.in(kQuery), 2, size * (heads + kv), size * kv), kv);
}

/// Normalises each head's features by their root mean square: x / sqrt(mean(x * x) + epsilon) * w.
ValueId normalised_heads(NodeContext& c, ValueId x, size_t weights, const std::string& epsilon) {
    const Expr size = c.b.shape(x)[3];
    const std::string misfit = fmt::format("input {} (a norm's weights) has shape {}, and [{}] is expected", weights,
                                           to_string(c.shape(weights)), size.text());
    c.require(c.rank(weights) == 1, misfit);
    c.b.require_equal(c.shape(weights)[0], size, misfit);
    const double e = static_cast<double>(c.node.attr_float(epsilon, c.node.attr_float("qk_norm_epsilon", 1e-6F)));
    const DType t = c.b.dtype(x);
    const ValueId real = c.b.cast(x, compute_type(t));
    const ValueId mean = c.b.mean(c.b.binary(ScalarOp::Mul, real, real), {3}, true);
    const ValueId y = c.b.binary(ScalarOp::Mul, real, inverse_root(c.b, mean, e));
    return c.b.cast(c.b.binary(ScalarOp::Mul, y, c.b.cast(c.in(weights), compute_type(t))), t);
}

void normalise_new(NodeContext& c, GroupedInputs& in) {
    c.require(c.has(kQueryNorm) == c.has(kKeyNorm), "the norms of query and key (inputs 14 and 15) belong together");
    if (!c.has(kQueryNorm)) return;
    in.q = normalised_heads(c, in.q, kQueryNorm, "q_norm_epsilon");
    in.k = normalised_heads(c, in.k, kKeyNorm, "k_norm_epsilon");
}

/// max(0, seqlens_k + 1 - length)
ValueId cached_positions(NodeContext& c, const GroupedInputs& in) {
    const Expr batch = c.shape(kQuery)[0];
    const std::string misfit = fmt::format("seqlens_k (input 5) of shape {} does not fit {} examples",
                                           to_string(c.shape(kLengths)), batch.text());
    c.b.require_equal(c.b.count(c.in(kLengths)), batch, misfit);
    TensorExpr e;
    e.extents = {batch};
    e.spatial = 1;
    e.accesses = {{c.b.reshape(c.in(kLengths), {batch}), {axis(0)}, {}, 0}};
    const Sx last = Sx(e.body, e.body.access(0, c.dtype(kLengths))).cast(DType::I64);
    e.body.set_root((last + Sx(e.body, e.body.index(1 - in.length))).max(0));
    return c.b.emit(std::move(e), DType::I64, "past");
}

/// Rotates new queries and keys by the angles of their positions, rows of the tables.
void rotate_new(NodeContext& c, GroupedInputs& in) {
    if (c.node.attr_int("do_rotary", 0) == 0) return;
    for (const size_t input : {size_t{kCosines}, size_t{kSines}})
        c.require(c.rank(input) == 2, fmt::format("a table of rank 2 is expected as input {}, and its shape is {}",
                                                  input, to_string(c.shape(input))));
    const Dims s = c.shape(kQuery);
    ValueId positions;
    if (c.has(kPositions)) {
        const std::string misfit = fmt::format("position_ids (input 9) of shape {} do not fit a query of shape {}",
                                               to_string(c.shape(kPositions)), to_string(s));
        c.require(c.rank(kPositions) == 2, misfit);
        c.b.require_equal(c.shape(kPositions)[0], s[0], misfit);
        c.b.require_equal(c.shape(kPositions)[1], s[1], misfit);
        positions = c.in(kPositions);
    } else {
        TensorExpr e;
        e.extents = {s[0], s[1]};
        e.spatial = 2;
        e.accesses = {{in.past, {axis(0)}, {}, 0}};
        e.body.set_root(Sx(e.body, e.body.access(0, DType::I64)) + Sx(e.body, e.body.index(axis(1))));
        positions = c.b.emit(std::move(e), DType::I64, "positions");
    }
    const ValueId cosines = c.b.gather(c.in(kCosines), positions, 0), sines = c.b.gather(c.in(kSines), positions, 0);
    const Expr size = c.shape(kCosines)[1] * 2;
    const bool interleaved = c.node.attr_int("rotary_interleaved", 0) != 0;
    in.q = rotated(c, in.q, 2, cosines, sines, size, interleaved);
    in.k = rotated(c, in.k, 2, cosines, sines, size, interleaved);
}

/// The cache of `present` positions, with the new ones behind the cached ones.
ValueId present_cache(NodeContext& c, const GroupedInputs& in, ValueId now, size_t past) {
    const Dims n = c.b.shape(now);
    if (!c.has(past)) {
        if (in.present == in.length) return now;
        return c.b.pad(now, {0, 0, 0, 0}, {0, 0, in.present - in.length, 0}, 0);
    }
    const Dims s = c.shape(past);
    const std::string misfit = fmt::format("a cache (input {}) of shape {} does not fit new positions of shape {}",
                                           past, to_string(s), to_string(n));
    c.require(s.size() == 4, misfit);
    for (const size_t d : {size_t{0}, size_t{1}, size_t{3}}) c.b.require_equal(s[d], n[d], misfit);
    c.require(c.dtype(past) == c.b.dtype(now), fmt::format("the cache (input {}) should be {}, and is {}", past,
                                                           to_string(c.b.dtype(now)), to_string(c.dtype(past))));
    TensorExpr e;
    e.extents = {n[0], n[1], in.present, n[3]};
    e.spatial = 4;
    const Expr p = axis(2), fresh = p - load(0);
    e.accesses = {{in.past, {axis(0)}, {}, 0},
                  {c.in(past), {axis(0), axis(1), p, axis(3)}, {s[2] - 1 - p}, 0},
                  {now, {axis(0), axis(1), fresh, axis(3)}, {fresh, n[2] - 1 - fresh}, 0}};
    const DType t = c.b.dtype(now);
    const Sx cached(e.body, e.body.access(0, DType::I64)), here(e.body, e.body.index(p));
    e.body.set_root(
        here.apply(ScalarOp::Lt, cached).choose(Sx(e.body, e.body.access(1, t)), Sx(e.body, e.body.access(2, t))));
    return c.b.emit(std::move(e), t, "present");
}

/// The scale of a cache of bytes: one number, or one for each head and feature, [kv, 1, size]. None: it has no bytes.
std::optional<ValueId> cache_scale(NodeContext& c, const GroupedInputs& in, size_t scale, const std::string& kind) {
    const std::string type = c.node.attr_string(kind, "NONE");
    c.require(type == "NONE" || type == "PER_TENSOR" || type == "PER_CHANNEL",
              fmt::format("attribute '{}' has the unknown value {}", kind, quoted_name(type)));
    if (type == "NONE") return std::nullopt;
    c.require(c.dtype(scale) == DType::F32,
              fmt::format("input {} (a scale) should be f32, and is {}", scale, to_string(c.dtype(scale))));
    const bool one = type == "PER_TENSOR";
    const Expr size = c.b.shape(in.k)[3], expected = one ? Expr(1) : size * in.heads.kv;
    c.b.require_equal(c.b.count(c.in(scale)), expected,
                      fmt::format("input {} (a scale) has shape {}, and {} numbers are expected", scale,
                                  to_string(c.shape(scale)), expected.text()));
    return c.b.reshape(c.in(scale), one ? Dims{} : Dims{in.heads.kv, Expr(1), size});
}

/// The cache with the new positions, and the numbers that it represents.
struct Cache {
    ValueId present, real;
};
Cache updated_cache(NodeContext& c, const GroupedInputs& in, ValueId now, size_t past, std::optional<ValueId> scale) {
    if (!scale) {
        const ValueId present = present_cache(c, in, now, past);
        return {present, present};
    }
    const DType t = c.b.dtype(now);
    // A separate value: the ratio is rounded to a float before it is rounded to an integer.
    const ValueId ratio = c.b.binary(ScalarOp::Div, c.b.cast(now, DType::F32), *scale);
    const ValueId bytes = c.b.map(
        {ratio}, DType::I8,
        [](ScalarBody& body, Ids v) -> ScalarId { return quantised(Sx(body, v[0]), {}, DType::I8); }, "quantised");
    const ValueId present = present_cache(c, in, bytes, past);
    const ValueId real = c.b.map(
        {present, *scale}, DType::F32,
        [](ScalarBody& body, Ids v) -> ScalarId { return Sx(body, v[0]).cast(DType::F32) * Sx(body, v[1]); }, "real");
    return {present, c.b.cast(real, t)};
}

/// With attribute causal = 0 every key of an example is seen: seqlens_k + 1 of them.
void set_visible_keys(NodeContext& c, const GroupedInputs& in, Scoring& how) {
    how.window = c.node.attr_int("local_window_size", -1);
    if (how.window >= kMost) how.window = 0;
    const int64_t causal = c.node.attr_int("causal", 1);
    c.require(causal == 0 || causal == 1, fmt::format("attribute 'causal' should be 0 or 1, and is {}", causal));
    if (causal == 1) {
        how.past = in.past;
        return;
    }
    c.require(how.window <= 0, "attribute 'local_window_size' should be -1 where 'causal' is 0");
    const Expr batch = c.shape(kQuery)[0];
    TensorExpr e;
    e.extents = {batch};
    e.spatial = 1;
    e.accesses = {{c.b.reshape(c.in(kLengths), {batch}), {axis(0)}, {}, 0}};
    e.body.set_root(Sx(e.body, e.body.access(0, c.dtype(kLengths))).cast(DType::I64) + 1);
    how.lengths = c.b.emit(std::move(e), DType::I64, "keys");
}

/// The bias [batch or 1, heads or 1, length, keys], extended to the length of the cache.
std::optional<ValueId> attention_bias(NodeContext& c, const GroupedInputs& in) {
    if (!c.has(kBias)) return std::nullopt;
    const Dims s = c.shape(kBias);
    const std::string misfit = fmt::format("an attention bias of shape {} does not fit a query of shape {}",
                                           to_string(s), to_string(c.shape(kQuery)));
    c.require(s.size() == 4, misfit);
    c.b.require_spread(s[0], c.shape(kQuery)[0], misfit);
    c.b.require_spread(s[1], in.heads.kv * in.heads.group, misfit);
    c.b.require_equal(s[2], in.length, misfit);
    ValueId bias = c.in(kBias);
    if (!(s[3] == in.present)) {
        c.b.require_at_least(in.present, s[3], misfit);
        bias = c.b.pad(bias, {0, 0, 0, 0}, {0, 0, 0, in.present - s[3]}, 0);
    }
    return in.heads.mask(c, bias);
}

/// A further score of each row: 0 (smooth_softmax), or one for each head (input 11).
std::optional<ValueId> sinks(NodeContext& c, const GroupedInputs& in) {
    const int64_t heads = in.heads.kv.constant() * in.heads.group;
    if (c.has(kSinks)) {
        const std::string misfit =
            fmt::format("head_sink (input 11) should have shape [{}], and has {}", heads, to_string(c.shape(kSinks)));
        c.require(c.rank(kSinks) == 1, misfit);
        c.b.require_equal(c.shape(kSinks)[0], heads, misfit);
        if (in.heads.group == 1) return c.b.reshape(c.in(kSinks), {heads, 1, 1});
        return c.b.reshape(c.in(kSinks), {in.heads.kv, in.heads.group, 1, 1});
    }
    if (c.node.attr_int("smooth_softmax", 0) != 1) return std::nullopt;
    return c.b.full({}, DType::F32, 0);
}

void group_query_attention(NodeContext& c) {
    require_implemented(c);
    GroupedInputs in;
    read_projections(c, in);
    c.require(c.has(kPastKey) == c.has(kPastValue), "past_key and past_value (inputs 3 and 4) belong together");
    c.require(c.b.count(c.in(kTotal)).is_constant(1), "total_sequence_length (input 6) should be one number");
    const Expr total = c.b.read_int(c.in(kTotal));
    in.present = c.has(kPastKey) && c.rank(kPastKey) == 4 ? max(total, c.shape(kPastKey)[2]) : total;
    c.b.require_at_least(in.present, in.length, "total_sequence_length is smaller than the length of the query");
    in.past = cached_positions(c, in);
    normalise_new(c, in);
    rotate_new(c, in);
    const Cache k = updated_cache(c, in, in.k, kPastKey, cache_scale(c, in, kKeyScale, "k_quant_type")),
                v = updated_cache(c, in, in.v, kPastValue, cache_scale(c, in, kValueScale, "v_quant_type"));
    Scoring how;
    how.scale = attention_scale(c, c.b.shape(in.q)[3], true);
    how.softcap = static_cast<double>(c.node.attr_float("softcap", 0));
    how.mask = attention_bias(c, in);
    set_visible_keys(c, in, how);
    how.sinks = sinks(c, in);
    const DType t = c.dtype(kQuery);
    const Attended a = attend(c.b, in.heads, in.q, k.real, v.real, how, compute_type(t), t);
    c.out(0, merge_heads(c.b, in.heads.flat(c.b, a.y)));
    c.out(1, k.present);
    c.out(2, v.present);
}

}  // namespace

std::vector<OpLowering> contrib_gqa_lowerings() {
    return {{"com.microsoft", "GroupQueryAttention", 1, group_query_attention}};
}

}  // namespace tilewright
