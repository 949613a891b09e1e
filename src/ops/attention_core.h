#pragma once
// The parts of attention, shared by the operators of ONNX and of com.microsoft.

#include <optional>

#include "ops/lowering.h"

namespace tilewright {

/// [batch, length, heads * size]   ->   [batch, heads, length, size]
ValueId split_heads(NodeContext& c, ValueId v, int64_t heads);
/// The inverse.
ValueId merge_heads(Builder& b, ValueId v);

/// Query heads [kv * group] share key and value heads [kv]: with group > 1, query-side tensors have the dimensions
/// [batch, kv, group, ...] instead of [batch, heads, ...].
struct Heads {
    Expr kv;
    int64_t group = 1;

    ValueId grouped(Builder& b, ValueId v) const;
    ValueId flat(Builder& b, ValueId v) const;
    /// A mask that broadcasts to [batch, heads, query, key].
    ValueId mask(NodeContext& c, ValueId v) const;
};

/// The transformations of the scores between the products and the softmax.
struct Scoring {
    double scale = 1, softcap = 0;
    std::optional<ValueId> mask;       ///< Bool: false entries are masked out; other types are added
    std::optional<Expr> causal;        ///< key <= query + causal
    bool last_query_sees_all = false;  ///< with `causal`: it does not apply to the last query
    std::optional<ValueId> past;       ///< I64 [batch]: key <= query + past
    int64_t window = 0;                ///< with `past`, if positive: key > query + past - window
    std::optional<ValueId> lengths;    ///< integers [batch]: number of keys without padding
    bool causal_at_the_end = false;    ///< the last query is aligned with the last such key
    std::optional<ValueId> sinks;      ///< [kv, group, 1, 1] or [kv, 1, 1]: a further score of each row, of no value
};

/// The steps of softmax(mask(cap(q k^T * scale))) v, for the grouped heads.
struct Attended {
    ValueId raw, capped, scores, weights, y;
};
/// q [batch, heads, query, size], k and v [batch, kv, key, size]. The scores have type `wide`, y has type `out`.
Attended attend(Builder& b, const Heads& heads, ValueId q, ValueId k, ValueId v, const Scoring& how, DType wide,
                DType out);

/// v where a key of the row is not masked out, else 0.    v [..., query, n], scores [..., query, key]
ValueId zero_where_all_masked(Builder& b, ValueId v, ValueId scores);

/// The first `size` features of x [batch, .., .., features], with positions along `along`, rotated by the angles of
/// the tables [batch or 1, positions, size / 2 or more]; the others unchanged.
ValueId rotated(NodeContext& c, ValueId x, size_t along, ValueId cosines, ValueId sines, Expr size, bool interleaved);

/// The attribute "scale", or 1 / sqrt(size).
double attention_scale(const NodeContext& c, Expr size, bool zero_is_default);

}  // namespace tilewright
