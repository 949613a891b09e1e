// Attention, RotaryEmbedding, LinearAttention as products, masks and a softmax.

#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/attention_core.h"
#include "ops/families.h"
#include "ops/scalar_math.h"
#include "ops/step_loop.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// --- Attention

struct AttentionInputs {
    ValueId q, k, v;  ///< [batch, heads, length, size]; keys and values include the past
    Expr past = 0;    ///< number of past keys
    Heads heads;
    bool packed = false;  ///< inputs and output are [batch, length, heads * size]
};

AttentionInputs attention_inputs(NodeContext& c) {
    AttentionInputs in;
    for (size_t i = 0; i < 3; ++i)
        c.require(c.rank(i) == c.rank(0) && (c.rank(i) == 3 || c.rank(i) == 4),
                  fmt::format("query, key and value should have one rank, 3 or 4, and have shapes {}, {} and {}",
                              to_string(c.shape(0)), to_string(c.shape(1)), to_string(c.shape(2))));
    in.packed = c.rank(0) == 3;
    in.q = c.in(0);
    in.k = c.in(1);
    in.v = c.in(2);
    if (in.packed) {
        const int64_t q_heads = c.node.attr_int("q_num_heads", 0), kv_heads = c.node.attr_int("kv_num_heads", 0);
        c.require(q_heads >= 1 && kv_heads >= 1, "inputs of rank 3 need the attributes q_num_heads and kv_num_heads");
        in.q = split_heads(c, in.q, q_heads);
        in.k = split_heads(c, in.k, kv_heads);
        in.v = split_heads(c, in.v, kv_heads);
    }
    const Expr heads = c.b.shape(in.q)[1];
    in.heads.kv = c.b.shape(in.k)[1];
    if (heads.is_constant() && in.heads.kv.is_constant()) {
        const int64_t kv = in.heads.kv.constant();
        c.require(kv >= 1 && heads.constant() % kv == 0,
                  fmt::format("{} query heads do not share {} key heads evenly", heads.text(), kv));
        in.heads.group = heads.constant() / kv;
    } else if (!(heads == in.heads.kv)) {
        c.unsupported("the numbers of heads must be known before the model runs");
    }
    if (c.has(4) && c.has(5)) {
        in.past = c.shape(4).at(2);
        const std::vector<ValueId> keys = {c.in(4), in.k}, values = {c.in(5), in.v};
        in.k = c.b.concat(keys, 2);
        in.v = c.b.concat(values, 2);
    }
    return in;
}

/// The mask (input 3), extended to the number of keys; keys beyond it are masked out.
std::optional<ValueId> attention_mask(NodeContext& c, const Heads& heads, Expr keys) {
    if (!c.has(3)) return std::nullopt;
    ValueId mask = c.in(3);
    c.require(c.b.rank(mask) >= 2 && c.b.rank(mask) <= 4,
              fmt::format("a mask of rank 2 to 4 is expected, and its shape is {}", to_string(c.b.shape(mask))));
    const Expr length = c.b.shape(mask).back();
    if (!(length == keys) && !length.is_constant(1)) {
        Dims none(c.b.rank(mask), Expr(0)), missing = none;
        missing.back() = keys - length;
        mask = c.b.pad(mask, none, missing, c.b.dtype(mask) == DType::Bool ? 0 : -kInfinity);
    }
    return heads.mask(c, mask);
}

Scoring scoring(NodeContext& c, const AttentionInputs& in) {
    Scoring how;
    how.scale = attention_scale(c, c.b.shape(in.q)[3], false);
    how.softcap = static_cast<double>(c.node.attr_float("softcap", 0));
    how.mask = attention_mask(c, in.heads, c.b.shape(in.k)[2]);
    const bool causal = c.node.attr_int("is_causal", 0) != 0;
    if (c.has(6)) {
        const std::string misfit = fmt::format(
            "'nonpad_kv_seqlen' has shape {}, and one number per example is expected", to_string(c.shape(6)));
        c.require(c.rank(6) == 1, misfit);
        c.b.require_equal(c.shape(6)[0], c.b.shape(in.q)[0], misfit);
        how.lengths = c.in(6);
        how.causal_at_the_end = causal;
    } else if (causal) {
        how.causal = in.past;
    }
    return how;
}

/// y = softmax(mask(cap(q k^T * scale))) v
void attention(NodeContext& c) {
    const AttentionInputs in = attention_inputs(c);
    const Scoring how = scoring(c, in);
    const DType t = c.dtype(0);
    const DType wide = c.dtype_attr("softmax_precision") == DType::F64 ? DType::F64 : compute_type(t);
    const Attended a = attend(c.b, in.heads, in.q, in.k, in.v, how, wide, t);
    // Without other masks, a causal mask leaves every row a key.
    const bool may_be_empty = how.mask || how.lengths;
    ValueId y = may_be_empty ? zero_where_all_masked(c.b, a.y, a.scores) : a.y;
    y = in.heads.flat(c.b, y);
    c.out(0, in.packed ? merge_heads(c.b, y) : y);
    c.out(1, in.k);
    c.out(2, in.v);
    if (!c.uses_output(3)) return;
    const int64_t mode = c.node.attr_int("qk_matmul_output_mode", 0);
    c.require(mode >= 0 && mode <= 3, fmt::format("attribute 'qk_matmul_output_mode' is {}, and 0 to 3 exist", mode));
    ValueId shown = mode == 0 ? a.raw : mode == 1 ? a.capped : mode == 2 ? a.scores : a.weights;
    if (mode == 3 && may_be_empty) shown = zero_where_all_masked(c.b, shown, a.scores);
    c.out(3, c.b.cast(in.heads.flat(c.b, shown), t));
}

// --- RotaryEmbedding

void rotary_embedding(NodeContext& c) {
    const size_t rank = c.rank(0);
    c.require(rank == 3 || rank == 4,
              fmt::format("an input of rank 3 or 4 is expected, and its shape is {}", to_string(c.shape(0))));
    c.require(c.dtype(1) == c.dtype(0) && c.dtype(2) == c.dtype(0), "the tables must have the input's type");
    ValueId x = c.in(0);
    const size_t along = rank == 3 ? 1 : 2;
    if (rank == 3) {  // [batch, positions, heads, size]
        const int64_t heads = c.node.attr_int("num_heads", 0);
        c.require(heads >= 1, "an input of rank 3 needs the attribute num_heads");
        const Dims s = c.shape(0);
        c.b.require_multiple(s[2], heads, fmt::format("{} features do not divide into {} heads", s[2].text(), heads),
                             "features");
        x = c.b.reshape(x, {s[0], s[1], heads, floor_div(s[2], heads)});
    }
    const Expr size = c.b.shape(x)[3];
    const int64_t requested = c.node.attr_int("rotary_embedding_dim", 0);
    ValueId cosines = c.in(1), sines = c.in(2);
    if (c.has(3)) {
        cosines = c.b.gather(cosines, c.in(3), 0);
        sines = c.b.gather(sines, c.in(3), 0);
    }
    const ValueId y = rotated(c, x, along, cosines, sines, requested > 0 ? Expr(requested) : size,
                              c.node.attr_int("interleaved", 0) != 0);
    c.out(0, c.b.reshape(y, c.shape(0)));
}

// --- LinearAttention

/// S = exp(g) * S (gated);  u = v, or beta * (v - S^T k) (delta);  S' = S + k u^T;  o = scale * S'^T q
///
/// One step: q [b, h, n, d], k [b, h, d], v [b, h, e], decay [b, h, d or 1], beta [b, h or 1], state [b, h, d, e].
struct LinearStep {
    bool gated = false, delta = false;
    double scale = 1;
    Expr heads, group;

    std::vector<ValueId> operator()(Builder& b, const std::vector<ValueId>& carried,
                                    const std::vector<ValueId>& slices) const {
        const DType t = b.dtype(carried[0]);
        const Dims s = b.shape(carried[0]);
        const auto wide = [&](size_t i, Dims shape) { return b.cast(b.reshape(slices[i], std::move(shape)), t); };
        const ValueId q = wide(0, {s[0], heads, group, s[2]}), k = wide(1, {s[0], heads, s[2]});
        const ValueId v = wide(2, {s[0], heads, s[3]});
        ValueId state = carried[0];
        size_t next = 3;
        if (gated) {
            const Expr width = floor_div(b.shape(slices[next])[1], heads);
            const ValueId g = wide(next++, {s[0], heads, width, 1});
            state = b.map(
                {state, g}, t,
                [](ScalarBody& body, Ids x) -> ScalarId { return Sx(body, x[0]) * Sx(body, x[1]).exp(); }, "decayed");
        }
        ValueId u = v;
        if (delta) {
            const ValueId recalled = b.contract("bhde,bhd->bhe", state, k, t, "recalled");
            const ValueId beta = wide(next, {s[0], b.shape(slices[next])[1], 1});
            u = b.map(
                {v, recalled, beta}, t,
                [](ScalarBody& body, Ids x) -> ScalarId { return (Sx(body, x[0]) - Sx(body, x[1])) * Sx(body, x[2]); },
                "correction");
        }
        const ValueId after = b.map(
            {state, b.reshape(k, {s[0], heads, s[2], 1}), b.reshape(u, {s[0], heads, 1, s[3]})}, t,
            [](ScalarBody& body, Ids x) -> ScalarId { return Sx(body, x[0]) + Sx(body, x[1]) * Sx(body, x[2]); },
            "state");
        const ValueId out = b.contract("bhgd,bhde->bhge", q, after, t, "recall");
        const ValueId y = scale == 1 ? out : b.binary(ScalarOp::Mul, out, scale);
        return {after, b.reshape(y, {s[0], heads * group * s[3]})};
    }
};

void linear_attention(NodeContext& c) {
    for (size_t i = 0; i < 3; ++i)
        c.require(c.rank(i) == 3, fmt::format("query, key and value of rank 3 are expected, and one has shape {}",
                                              to_string(c.shape(i))));
    const int64_t q_heads = c.node.attr_int("q_num_heads", 0), kv_heads = c.node.attr_int("kv_num_heads", 0);
    c.require(
        q_heads >= 1 && kv_heads >= 1 && q_heads % kv_heads == 0,
        fmt::format("q_num_heads should be a multiple of kv_num_heads, and they are {} and {}", q_heads, kv_heads));
    const std::string rule = c.node.attr_string("update_rule", "gated_delta");
    c.require(rule == "linear" || rule == "gated" || rule == "delta" || rule == "gated_delta",
              fmt::format("attribute 'update_rule' has the unknown value {}", quoted_name(rule)));
    LinearStep step;
    step.gated = rule == "gated" || rule == "gated_delta";
    step.delta = rule == "delta" || rule == "gated_delta";
    for (const auto& [input, read] : {std::pair(size_t{4}, step.gated), std::pair(size_t{5}, step.delta)})
        c.require(!read || c.rank(input) == 3,
                  fmt::format("input {} should have rank 3 for the rule '{}', and its shape is {}", input, rule,
                              read ? to_string(c.shape(input)) : ""));
    step.heads = kv_heads;
    step.group = q_heads / kv_heads;
    const Expr d = floor_div(c.shape(1)[2], kv_heads), e = floor_div(c.shape(2)[2], kv_heads);
    step.scale = static_cast<double>(c.node.attr_float("scale", 0));
    if (step.scale == 0) {
        if (!d.is_constant()) c.unsupported("the heads' size must be known before the model runs");
        step.scale = 1 / std::sqrt(static_cast<double>(d.constant()));
    }
    const DType t = c.dtype(0), wide = compute_type(t);
    const DType stored = c.has(3) ? c.dtype(3) : t;
    const Dims state = {c.shape(0)[0], kv_heads, d, e};
    StepLoop loop;
    loop.name = "steps";
    loop.length = c.shape(0)[1];
    loop.carried = {c.has(3) ? c.b.cast(c.b.reshape(c.in(3), state), wide) : c.b.full(state, wide, 0)};
    loop.scanned = {{c.in(0), 1, false}, {c.in(1), 1, false}, {c.in(2), 1, false}};
    if (step.gated) loop.scanned.push_back({c.in(4), 1, false});
    if (step.delta) loop.scanned.push_back({c.in(5), 1, false});
    loop.stacked = {{1, false}};
    const std::vector<ValueId> out =
        run_steps(c, std::move(loop),
                  [&](Builder& b, const std::vector<ValueId>& carried, const std::vector<ValueId>& slices,
                      const std::vector<ValueId>&) { return step(b, carried, slices); });
    c.out(0, c.b.cast(out[1], t));
    c.out(1, c.b.cast(out[0], stored));
}

}  // namespace

std::vector<OpLowering> attention_lowerings() {
    return {
        {"", "Attention", 23, attention},
        {"", "LinearAttention", 27, linear_attention},
        {"", "RotaryEmbedding", 23, rotary_embedding},
    };
}

}  // namespace tilewright
