// Normalisations of com.microsoft that add their operands first: SkipLayerNormalization,
// SkipSimplifiedLayerNormalization, EmbedLayerNormalization.
//
//     sum = input + skip + bias;   y = normalize(sum) * gamma + beta
//
// Sums and statistics are computed in f32.

#include "base/error.h"
#include "ops/families.h"
#include "ops/norm.h"
#include "ops/scalar_math.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

double epsilon_of(const NodeContext& c) { return static_cast<double>(c.node.attr_float("epsilon", 1e-12F)); }

/// A vector with one number per feature, the last dimension of `of`.
void require_features(NodeContext& c, size_t input, ValueId of, std::string_view what) {
    const std::string misfit =
        fmt::format("{} (input {}) has shape {}, and one number for each of {} features is expected", what, input,
                    to_string(c.shape(input)), c.b.shape(of).back().text());
    c.require(c.rank(input) == 1, misfit);
    c.b.require_equal(c.shape(input)[0], c.b.shape(of).back(), misfit, "features");
}

/// input + skip + bias in f32. `skip` has the input's shape, possibly without the batch or with one of 1.
ValueId skip_sum(NodeContext& c, size_t bias) {
    const Dims x = c.shape(0), s = c.shape(1);
    c.require(x.size() == 2 || x.size() == 3,
              fmt::format("an input of rank 2 or 3 is expected, and its shape is {}", to_string(x)));
    const std::string misfit =
        fmt::format("a skip input of shape {} does not fit an input of shape {}", to_string(s), to_string(x));
    c.require(s.size() <= x.size() && s.size() >= 2, misfit);
    for (size_t k = 0; k < s.size(); ++k) {
        const Expr d = x[x.size() - s.size() + k];
        if (k == 0 && s.size() == 3)
            c.b.require_spread(s[k], d, misfit);
        else
            c.b.require_equal(s[k], d, misfit);
    }
    std::vector<ValueId> parts = {c.in(0), c.in(1)};
    if (c.has(bias)) {
        require_features(c, bias, c.in(0), "the bias");
        parts.push_back(c.in(bias));
    }
    const DType wide = compute_type(c.dtype(0));
    return c.b.map(
        parts, wide,
        [&](ScalarBody& body, Ids v) -> ScalarId {
            Sx sum = Sx(body, v[0]) + Sx(body, v[1]);
            if (v.size() > 2) sum = sum + Sx(body, v[2]);
            return sum;
        },
        "sum");
}

/// y * gamma + beta, in type `out`. `beta`: an input, possibly missing.
ValueId affine_features(NodeContext& c, ValueId y, size_t gamma, size_t beta, DType out) {
    require_features(c, gamma, y, "gamma");
    std::vector<ValueId> parts = {y, c.in(gamma)};
    if (c.has(beta)) {
        require_features(c, beta, y, "beta");
        parts.push_back(c.in(beta));
    }
    return c.b.map(
        parts, out,
        [&](ScalarBody& body, Ids v) -> ScalarId {
            const Sx scaled = Sx(body, v[0]) * Sx(body, v[1]);
            return v.size() > 2 ? scaled + Sx(body, v[2]) : scaled;
        },
        "affine");
}

/// Inputs: input, skip, gamma, beta, bias. Outputs: y, mean, 1 / deviation, sum.
void skip_layer_normalization(NodeContext& c) {
    const ValueId sum = skip_sum(c, 4);
    const Normalized n = normalize(c.b, sum, {-1}, epsilon_of(c));
    c.out(0, affine_features(c, n.value, 2, 3, c.dtype(0)));
    c.out(1, n.mean);
    c.out(2, n.inverse_deviation);
    if (c.uses_output(3)) c.out(3, c.b.cast(sum, c.dtype(0)));
}

/// Inputs: input, skip, gamma, bias. Outputs: y, none, 1 / root mean square, sum.
void skip_simplified_layer_normalization(NodeContext& c) {
    constexpr size_t kNone = 99;
    const ValueId sum = skip_sum(c, 3);
    const ValueId squares = c.b.mean(c.b.binary(ScalarOp::Mul, sum, sum), {-1}, true);
    const ValueId inverse = inverse_root(c.b, squares, epsilon_of(c));
    c.out(0, affine_features(c, c.b.binary(ScalarOp::Mul, sum, inverse), 2, kNone, c.dtype(0)));
    c.out(2, inverse);
    if (c.uses_output(3)) c.out(3, c.b.cast(sum, c.dtype(0)));
}

// --- EmbedLayerNormalization

void require_table(NodeContext& c, size_t input, Expr features, std::string_view what) {
    const std::string misfit = fmt::format("{} (input {}) has shape {}, and a matrix with {} columns is expected", what,
                                           input, to_string(c.shape(input)), features.text());
    c.require(c.rank(input) == 2, misfit);
    c.b.require_equal(c.shape(input)[1], features, misfit, "features");
}

/// [batch or 1, sequence] integers, the shape of input 0.
void require_ids(NodeContext& c, size_t input, bool spread) {
    const std::string misfit = fmt::format("input {} has shape {}, and the ids have {}", input,
                                           to_string(c.shape(input)), to_string(c.shape(0)));
    c.require(c.rank(input) == 2, misfit);
    if (spread)
        c.b.require_spread(c.shape(input)[0], c.shape(0)[0], misfit);
    else
        c.b.require_equal(c.shape(input)[0], c.shape(0)[0], misfit);
    c.b.require_equal(c.shape(input)[1], c.shape(0)[1], misfit);
}

/// word[ids] + position[positions] + segment[segments]
ValueId embedding_sum(NodeContext& c) {
    c.require(c.rank(0) == 2,
              fmt::format("ids of shape [batch, sequence] are expected, and their shape is {}", to_string(c.shape(0))));
    const Expr sequence = c.shape(0)[1];
    c.require(c.rank(2) == 2,
              fmt::format("the word embedding (input 2) should be a matrix, and has shape {}", to_string(c.shape(2))));
    const Expr features = c.shape(2)[1];
    require_table(c, 3, features, "the position embedding");
    std::vector<ValueId> parts = {c.b.gather(c.in(2), c.in(0), 0)};
    if (c.has(8)) {
        require_ids(c, 8, true);
        parts.push_back(c.b.gather(c.in(3), c.in(8), 0));
    } else {
        c.b.require_at_least(c.shape(3)[0], sequence,
                             fmt::format("a position embedding of shape {} is too short for {} positions",
                                         to_string(c.shape(3)), sequence.text()));
        parts.push_back(c.b.slice(c.in(3), 0, 0, sequence));
    }
    c.require(c.has(1) == c.has(4), "segment_ids and segment_embedding (inputs 1 and 4) belong together");
    if (c.has(1)) {
        require_ids(c, 1, false);
        require_table(c, 4, features, "the segment embedding");
        parts.push_back(c.b.gather(c.in(4), c.in(1), 0));
    }
    return c.b.map(
        parts, compute_type(c.dtype(2)),
        [&](ScalarBody& body, Ids v) -> ScalarId {
            Sx sum = Sx(body, v[0]) + Sx(body, v[1]);
            if (v.size() > 2) sum = sum + Sx(body, v[2]);
            return sum;
        },
        "sum");
}

/// Inputs: ids, segments, word, position and segment embeddings, gamma, beta, mask, positions. Outputs: y, the number
/// of ones of each row of the mask, the sum.
void embed_layer_normalization(NodeContext& c) {
    const ValueId sum = embedding_sum(c);
    const Normalized n = normalize(c.b, sum, {-1}, epsilon_of(c));
    c.out(0, affine_features(c, n.value, 5, 6, c.dtype(2)));
    if (c.uses_output(2)) c.out(2, c.b.cast(sum, c.dtype(2)));
    if (!c.uses_output(1)) return;
    if (!c.has(7)) return c.out(1, c.b.full({c.shape(0)[0]}, DType::I32, 0));
    require_ids(c, 7, false);
    c.out(1, c.b.reduce_map(
                 Reducer::Sum, {c.in(7)}, DType::I32,
                 [](ScalarBody& body, Ids v) -> ScalarId {
                     return Sx(body, v[0]).apply(ScalarOp::Eq, 1.0).cast(DType::I32);
                 },
                 {1}, false, "mask_index"));
}

}  // namespace

std::vector<OpLowering> contrib_norm_lowerings() {
    constexpr std::string_view kDomain = "com.microsoft";
    return {
        {kDomain, "EmbedLayerNormalization", 1, embed_layer_normalization},
        {kDomain, "SkipLayerNormalization", 1, skip_layer_normalization},
        {kDomain, "SkipSimplifiedLayerNormalization", 1, skip_simplified_layer_normalization},
    };
}

}  // namespace tilewright
