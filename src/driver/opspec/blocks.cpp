// Blocks of networks: attention, MLPs, a normalisation before a product.

#include <cmath>
#include <limits>

#include "base/error.h"
#include "driver/opspec/kinds.h"
#include "driver/zoo/layers.h"

namespace tilewright::nets {

namespace {

/// [..., m, n] of 0 and -infinity: row i attends to columns up to i + n - m, so that the last row attends to all.
Value causal_mask(GraphBuilder& b, int64_t m, int64_t n) {
    if (n < m) model_error("operator 'attention': with mask=causal, n={} must be at least m={}", n, m);
    return b.buffer("mask", {m, n}, [&](std::span<float> out) {
        for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j)
                out[static_cast<size_t>(i * n + j)] = j <= i + n - m ? 0 : -std::numeric_limits<float>::infinity();
    });
}

/// [..., kv, n, k] -> [..., heads, n, k]: repeats each head of keys or values `heads / kv` times, as exporters write
/// it.
Value repeat_heads(GraphBuilder& b, const Value& x, int64_t heads, int64_t kv) {
    if (heads == kv) return x;
    const int64_t at = x.rank() - 2;
    Extents wide, flat;
    for (int64_t d = 0; d < x.rank(); ++d) {
        wide.push_back(x.size(d));
        flat.push_back(d + 1 == at ? heads : x.size(d));
    }
    wide.insert(wide.begin() + at, heads / kv);
    return reshape(b, expand(b, unsqueeze(b, x, {at}), wide, x), flat);
}

void build_attention(GraphBuilder& b, const OpSpec& s) {
    const int64_t heads = s.number("heads"), kv = s.number("kv_heads"), batch = s.number("batch");
    if (heads % kv != 0) model_error("operator 'attention': heads={} should be a multiple of kv_heads={}", heads, kv);
    const int64_t m = s.number("m"), n = s.number("n"), k = s.number("k"), h = s.number("h");
    Value q = batched_input(b, "q", batch, {heads, m, k});
    Value keys = batched_input(b, "k", batch, {kv, n, k});
    const Value v = repeat_heads(b, batched_input(b, "v", batch, {kv, n, h}), heads, kv);
    if (s.text("norm") == "rms") {
        q = rms_norm(b, "q_norm", q, kEpsilon);
        keys = rms_norm(b, "k_norm", keys, kEpsilon);
    } else if (s.text("norm") == "layer") {
        q = layer_norm(b, "q_norm", q, kEpsilon);
        keys = layer_norm(b, "k_norm", keys, kEpsilon);
    }
    keys = repeat_heads(b, keys, heads, kv);
    const double scale = s.has("scale") ? s.real("scale") : 1 / std::sqrt(static_cast<double>(k));
    Value scores = mul(b, matmul(b, q, swap_last(b, keys)), b.scalar(static_cast<float>(scale)));
    if (s.flag("bias")) scores = add(b, scores, b.input("bias", DType::F32, {heads, m, n}));
    if (s.text("mask") == "additive")
        scores = add(b, scores, b.input("mask", DType::F32, {m, n}));
    else if (s.text("mask") == "causal")
        scores = add(b, scores, causal_mask(b, m, n));
    b.output(matmul(b, softmax(b, scores, -1), v), "out");
}

/// EfficientViT's linear attention: relu(q) (relu(k)^T [v, 1]), divided by its last column.
void build_linear_attention(GraphBuilder& b, const OpSpec& s) {
    const int64_t heads = s.number("heads"), n = s.number("n"), k = s.number("k");
    const Extents shape = {heads, n, k};
    const Value q = relu(b, b.input("q", DType::F32, shape));
    const Value keys = relu(b, b.input("k", DType::F32, shape));
    const Value v = pad(b, b.input("v", DType::F32, shape), {0, 0, 0}, {0, 0, 1}, "constant", 1);
    const Value sums = matmul(b, q, matmul(b, swap_last(b, keys), v));
    const Value weight = add(b, slice(b, sums, 2, k, k + 1), b.scalar(1e-15f));
    b.output(div(b, slice(b, sums, 2, 0, k), weight), "out");
}

void build_mlp_mixer(GraphBuilder& b, const OpSpec& s) {
    const int64_t tokens = s.number("tokens"), channels = s.number("channels");
    Value x = b.input("x", DType::F32, {s.number("batch"), tokens, channels});
    Value y = swap_last(b, layer_norm(b, "norm1", x, kEpsilon));
    y = gelu(b, linear(b, "tokens1", y, s.number("hidden_tokens")));
    y = swap_last(b, linear(b, "tokens2", y, tokens));
    x = add(b, x, y);
    y = gelu(b, linear(b, "channels1", layer_norm(b, "norm2", x, kEpsilon), s.number("hidden_channels")));
    b.output(add(b, x, linear(b, "channels2", y, channels)), "out");
}

void build_gated_mlp(GraphBuilder& b, const OpSpec& s) {
    const int64_t n = s.number("n"), k = s.number("k");
    const LinearSpec plain{false, 1};
    const Value x = b.input("x", DType::F32, {s.number("m"), k});
    const Value gate = activate(b, linear(b, "gate", x, n, plain), s.text("act"));
    const Value y = mul(b, gate, linear(b, "up", x, n, plain));
    b.output(s.flag("down") ? linear(b, "down", y, k, plain) : y, "out");
}

void build_norm_gemm(GraphBuilder& b, const OpSpec& s) {
    const Value x = b.input("x", DType::F32, {s.number("m"), s.number("k")});
    const Value y = s.text("norm") == "rms" ? rms_norm(b, "norm", x, kEpsilon) : layer_norm(b, "norm", x, kEpsilon);
    b.output(activate(b, linear(b, "linear", y, s.number("n"), {s.flag("bias"), 1}), s.text("act")), "out");
}

/// x W + (x A) B, with A of few columns.
void build_lora(GraphBuilder& b, const OpSpec& s) {
    const int64_t n = s.number("n");
    const LinearSpec plain{false, 1};
    const Value x = b.input("x", DType::F32, {s.number("m"), s.number("k")});
    const Value low = linear(b, "lora_b", linear(b, "lora_a", x, s.number("r"), plain), n, plain);
    b.output(add(b, linear(b, "linear", x, n, plain), low), "out");
}

}  // namespace

void add_block_ops(std::vector<OpKind>& kinds) {
    const OpParam scale = optional_real("scale", "factor of the scores; default 1 / sqrt(k)");
    const OpParam m = needed("m", "rows"), n = needed("n", "columns of the result"),
                  k = needed("k", "columns of the input");
    kinds.push_back({"attention",
                     "softmax(scale q[m,k] k[n,k]^T + mask + bias) v[n,h], all of them inputs",
                     {number("heads", 1, "heads"),
                      as_other("kv_heads", "heads", "heads of keys and values, each for heads / kv_heads of queries"),
                      needed("m", "queries"), as_other("n", "m", "keys"), needed("k", "width of queries and keys"),
                      as_other("h", "k", "width of values"), number("batch", 1, "examples"), scale,
                      choice("mask", {"none", "additive", "causal"}, "none, an input [m,n], or a known triangle"),
                      flag("bias", "add an input [heads,m,n] to the scores"),
                      choice("norm", {"none", "rms", "layer"}, "normalise queries and keys")},
                     build_attention});
    kinds.push_back(
        {"linear_attention",
         "relu(q) (relu(k)^T v), each row divided by its weight (EfficientViT)",
         {number("heads", 1, "heads"), needed("n", "tokens"), needed("k", "width of queries, keys, values")},
         build_linear_attention});
    kinds.push_back({"mlp_mixer",
                     "a layer of MLP-Mixer: an MLP over the tokens, one over the channels",
                     {number("batch", 1, "images"), needed("tokens", "patches"), needed("channels", "channels"),
                      as_other("hidden_tokens", "tokens", "width of the first MLP"),
                      as_other("hidden_channels", "channels", "width of the second MLP")},
                     build_mlp_mixer});
    std::vector<std::string> gates = {"silu"};
    for (const std::string& name : activations())
        if (name != "silu") gates.push_back(name);
    kinds.push_back({"gated_mlp",
                     "act(x Wg) * (x Wu), x[m,k], Wg and Wu [k,n]; with down=1 times Wd[n,k]",
                     {m, n, k, choice("act", gates, "activation of the gate"), flag("down", "a third product")},
                     build_gated_mlp});
    kinds.push_back(
        {"norm_gemm",
         "act(norm(x[m,k]) W[k,n] + bias)",
         {m, n, k, choice("norm", {"layer", "rms"}, "which normalisation"), flag("bias", "add a vector"), act_param()},
         build_norm_gemm});
    kinds.push_back(
        {"lora", "x W + (x A) B, x[m,k], A[k,r], B[r,n]", {m, n, k, needed("r", "columns of A")}, build_lora});
}

}  // namespace tilewright::nets
