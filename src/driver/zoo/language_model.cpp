// BERT (Devlin et al., 2018; the smaller ones of Jiao et al., 2019, and Turc et al., 2019) and GPT-2 (Radford et al.,
// 2019), as the graphs of PyTorch's exporter: with symbolic extents every view becomes a Shape-Gather-Concat chain.

#include <numeric>

#include "driver/zoo/families.h"
#include "driver/zoo/layers.h"

namespace tilewright::nets {

namespace {

/// The exporters' value of a masked score: finite, so that a fully masked row stays finite.
constexpr float kMasked = -3.4028234663852886e38f;

struct BertSize {
    int64_t layers, hidden, heads, inner;
};

/// [batch, heads, seq, d] -> [batch, seq, heads * d].
Value merge_heads(GraphBuilder& b, const Value& x) {
    const Value y = transpose(b, x, {0, 2, 1, 3});
    return reshape(b, y, {y[0], y[1], y.size(2) * y.size(3)});
}

/// 0, 1, 2, ... as [1, count].
Tensor positions(int64_t count) {
    Ints values(static_cast<size_t>(count));
    std::iota(values.begin(), values.end(), 0);
    return Tensor::of(DType::I64, {1, count}, values);
}

/// table[begin:end] on `axis` with bounds known at run time (0-D values).
Value slice_between(GraphBuilder& b, const Value& table, int64_t axis, const Value& begin, const Value& end,
                    const Extent& extent) {
    Extents shape = table.shape;
    shape[static_cast<size_t>(axis)] = extent;
    const Value from = unsqueeze(b, begin, {0});
    const Value to = unsqueeze(b, end, {0});
    return b.node("Slice", {table, from, to, b.ints({axis})}, {}, shape);
}

Value bert_embeddings(GraphBuilder& b, const Value& ids, const Value& types, const BertSize& size, int64_t vocabulary,
                      int64_t longest) {
    const auto scope = b.scope("embeddings");
    Value place;
    if (ids[1].is_symbolic()) {
        const Value all = b.buffer("position_ids", positions(longest));
        const Value from = b.int_scalar(0);
        const Value to = dim_of(b, ids, 1);
        place = slice_between(b, all, 1, from, to, ids[1]);
    } else {
        place = b.constant(positions(ids.size(1)));
    }
    const Value words = embedding(b, "word_embeddings", ids, vocabulary, size.hidden);
    const Value kinds = embedding(b, "token_type_embeddings", types, 2, size.hidden, 0.5);
    const Value places = embedding(b, "position_embeddings", place, longest, size.hidden, 0.5);
    return layer_norm(b, "LayerNorm", add(b, add(b, words, kinds), places), 1e-12f);
}

/// (1 - mask) * -FLT_MAX as [batch, 1, 1, seq].
Value bert_mask(GraphBuilder& b, const Value& mask) {
    const Value keep = cast(b, unsqueeze(b, unsqueeze(b, mask, {1}), {2}), DType::F32);
    const Value drop = sub(b, b.scalar(1), keep);
    return mul(b, drop, b.scalar(kMasked));
}

Value bert_layer(GraphBuilder& b, const Value& x, const Value& mask, const BertSize& size) {
    Value y;
    {
        const auto scope = b.scope("attention");
        const Value q = linear(b, "self.query", x, size.hidden, {.gain = kQueryGain});
        const Value k = linear(b, "self.key", x, size.hidden, {.gain = kQueryGain});
        const Value keys = split_heads(b, k, size.heads, {0, 2, 3, 1});
        const Value v = split_heads(b, linear(b, "self.value", x, size.hidden), size.heads, {0, 2, 1, 3});
        const Value queries = split_heads(b, q, size.heads, {0, 2, 1, 3});
        const Value context =
            merge_heads(b, attend(b, queries, keys, v, [&](const Value& scores) { return add(b, scores, mask); }));
        y = linear(b, "output.dense", context, size.hidden);
        y = layer_norm(b, "output.LayerNorm", add(b, y, x), 1e-12f);
    }
    const Value inner = gelu(b, linear(b, "intermediate.dense", y, size.inner));
    return layer_norm(b, "output.LayerNorm", add(b, linear(b, "output.dense", inner, size.hidden), y), 1e-12f);
}

void bert(GraphBuilder& b, const ZooSettings& s, const BertSize& size) {
    constexpr int64_t kVocabulary = 30522;
    constexpr int64_t kLongest = 512;
    const Extents shape = {batch_extent(s), seq_extent(s)};
    const Value ids = b.input("input_ids", DType::I64, shape, kVocabulary);
    const Value types = b.input("token_type_ids", DType::I64, shape, 2);
    const Value mask = b.input("attention_mask", DType::I64, shape, 2);
    const Value drop = bert_mask(b, mask);
    Value x = bert_embeddings(b, ids, types, size, kVocabulary, kLongest);
    for (int64_t i = 0; i < size.layers; ++i) {
        const auto scope = b.scope("encoder.layer." + std::to_string(i));
        x = bert_layer(b, x, drop, size);
    }
    const Value pooled = tanh(b, gemm(b, "pooler.dense", gather_one(b, x, 1, 0), size.hidden));
    b.output(x, "last_hidden_state");
    b.output(pooled, "pooler_output");
}

/// GPT-2's form of a linear layer: rows flattened, one Gemm, rows restored.
Value flat_linear(GraphBuilder& b, const std::string& name, const Value& x, int64_t out, const LinearSpec& spec = {}) {
    const Value rows = reshape(b, x, {x[0] * x[1], x[2]});
    return reshape(b, gemm(b, name, rows, out, spec), {x[0], x[1], out}, x);
}

/// The lower triangle's rows [keys - queries, keys) and columns [0, keys).
Value causal_mask(GraphBuilder& b, const Value& triangle, const Value& queries, const Value& keys) {
    const Value n = dim_of(b, keys, 2);
    const Value m = dim_of(b, queries, 2);
    const Value rows = slice_between(b, triangle, 2, sub(b, n, m), n, queries[2]);
    const Value zero = b.int_scalar(0);
    return slice_between(b, rows, 3, zero, n, keys[2]);
}

struct GptSize {
    int64_t layers, hidden, heads, vocabulary, longest;
    bool decoder = false;  ///< with past keys and values, which outputs extend
};

/// The input past_key_values.I.WHAT with `rows` behind it, which is output present.I.WHAT.
Value with_past(GraphBuilder& b, const Value& rows, int64_t layer, const std::string& what) {
    const std::string name = std::to_string(layer) + "." + what;
    const Extent past(0, "past_sequence_length"), all(rows[2].size, "total_sequence_length");
    const Value before = b.input("past_key_values." + name, DType::F32, {rows[0], rows[1], past, rows[3]});
    Value out = b.node("Concat", {before, rows}, {{"axis", 2}}, {rows[0], rows[1], all, rows[3]});
    b.output(out, "present." + name);  // under which the graph has it from here on
    out.name = "present." + name;
    return out;
}

/// Whether a key is not behind its query, by the queries' places: [batch, 1, queries, keys].
Value mask_by_places(GraphBuilder& b, const Value& places, const Value& keys) {
    const Value from = b.int_scalar(0), to = dim_of(b, keys, 2), step = b.int_scalar(1);
    const Value all = b.node("Range", {from, to, step}, {}, Extents{keys[2]});
    const Value queries = unsqueeze(b, unsqueeze(b, places, {1}), {3});
    Value seen;
    seen.dtype = DType::Bool;
    seen.shape = {places[0], 1, places[1], keys[2]};
    return b.node("LessOrEqual", {all, queries}, {}, std::vector{seen})[0];
}

/// `mask_of`: the lower triangle; of a decoder the places of its queries.
Value gpt2_block(GraphBuilder& b, const Value& x, const Value& mask_of, const GptSize& size, int64_t layer) {
    Value y;
    {
        const auto scope = b.scope("attn");
        const Value all =
            flat_linear(b, "c_attn", layer_norm(b, "ln_1", x, 1e-5f), 3 * size.hidden, {.gain = kQueryGain});
        const std::vector<Value> parts = split(b, all, 2, {size.hidden, size.hidden, size.hidden});
        const Value q = split_heads(b, parts[0], size.heads, {0, 2, 1, 3});
        Value k = split_heads(b, parts[1], size.heads, {0, 2, 1, 3});
        Value v = split_heads(b, parts[2], size.heads, {0, 2, 1, 3});
        if (size.decoder) {
            k = with_past(b, k, layer, "key");
            v = with_past(b, v, layer, "value");
        }
        const auto mask = [&](const Value& scores) {
            const Value keep = size.decoder ? mask_by_places(b, mask_of, k) : causal_mask(b, mask_of, q, k);
            return where(b, keep, scores, b.scalar(kMasked));
        };
        const Value context = merge_heads(b, attend(b, q, transpose(b, k, {0, 1, 3, 2}), v, mask));
        y = add(b, flat_linear(b, "c_proj", context, size.hidden, {.gain = 0.5}), x);
    }
    const auto scope = b.scope("mlp");
    const Value inner = gelu_tanh(b, flat_linear(b, "c_fc", layer_norm(b, "ln_2", y, 1e-5f), 4 * size.hidden));
    return add(b, y, flat_linear(b, "c_proj", inner, size.hidden, {.gain = 0.5}));
}

/// True on and below the diagonal, [1, 1, n, n].
Tensor lower_triangle(int64_t n) {
    Tensor t(DType::Bool, {1, 1, n, n});
    const auto cells = t.as_mutable<uint8_t>();
    for (int64_t row = 0; row < n; ++row) {
        for (int64_t col = 0; col <= row; ++col) cells[static_cast<size_t>(row * n + col)] = 1;
    }
    return t;
}

void gpt2(GraphBuilder& b, const ZooSettings& s, const GptSize& size) {
    const Value ids = b.input("input_ids", DType::I64, {batch_extent(s), seq_extent(s)}, size.vocabulary);
    const auto transformer = b.scope("transformer");
    const Value table = b.weight("wte.weight", {size.vocabulary, size.hidden}, Draw{0, 0.05});
    Extents shape = ids.shape;
    shape.emplace_back(size.hidden);
    const Value words = b.node("Gather", {table, ids}, {{"axis", 0}}, shape);

    Value place;
    if (size.decoder) {
        place = b.input("position_ids", DType::I64, ids.shape, size.longest);
    } else if (ids[1].is_symbolic()) {
        const Value from = b.int_scalar(0);
        const Value to = dim_of(b, ids, 1);
        const Value step = b.int_scalar(1);
        place = unsqueeze(b, b.node("Range", {from, to, step}, {}, Extents{ids[1]}), {0});
    } else {
        place = b.constant(positions(ids.size(1)));
    }
    Value x = add(b, words, embedding(b, "wpe", place, size.longest, size.hidden, 0.02));

    const Value mask_of = size.decoder ? place : b.buffer("attn.bias", lower_triangle(size.longest));
    for (int64_t i = 0; i < size.layers; ++i) {
        const auto scope = b.scope("h." + std::to_string(i));
        x = gpt2_block(b, x, mask_of, size, i);
    }
    x = layer_norm(b, "ln_f", x, 1e-5f);
    // The head shares its weights with the embedding: logits = x wte^T.
    b.output(matmul(b, x, transpose(b, table, {1, 0})), "logits");
}

}  // namespace

void add_language_models(std::vector<Recipe>& recipes) {
    const auto add_bert = [&](const std::string& name, const std::string& description, const BertSize& size) {
        const auto build = [=](GraphBuilder& b, const ZooSettings& s) { bert(b, s, size); };
        recipes.push_back({name, description, {batch_option(), seq_option(128, 512)}, build});
        recipes.push_back(
            {name + "_dyn", description + "; symbolic batch and seq", {batch_option(0), seq_option(0, 512)}, build});
    };
    add_bert("bert_tiny", "TinyBERT: 4 layers, 312 wide, 12 heads", {4, 312, 12, 1200});
    add_bert("bert_small", "4 layers, 512 wide, 8 heads", {4, 512, 8, 2048});
    add_bert("bert_base", "12 layers, 768 wide, 12 heads", {12, 768, 12, 3072});
    add_bert("bert_large", "24 layers, 1024 wide, 16 heads", {24, 1024, 16, 4096});
    const auto add_gpt2 = [&](const std::string& name, const std::string& description, const GptSize& size) {
        recipes.push_back({name,
                           description + "; causal, symbolic batch and seq",
                           {batch_option(0), seq_option(0, size.longest)},
                           [=](GraphBuilder& b, const ZooSettings& s) { gpt2(b, s, size); }});
        GptSize decoder = size;
        decoder.decoder = true;
        recipes.push_back({name + "_decoder",
                           description + "; causal, with past keys and values; symbolic batch and seq",
                           {batch_option(0), seq_option(0, size.longest)},
                           [=](GraphBuilder& b, const ZooSettings& s) { gpt2(b, s, decoder); }});
    };
    add_gpt2("gpt2", "12 layers, 768 wide, 12 heads", {12, 768, 12, 50257, 1024, false});
    add_gpt2("gpt2_tiny", "2 layers, 64 wide, 4 heads, 1000 words", {2, 64, 4, 1000, 128, false});
}

}  // namespace tilewright::nets
