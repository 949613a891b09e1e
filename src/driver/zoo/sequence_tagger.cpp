// Taggers: one label per token, from stacked bidirectional recurrent layers over embeddings.

#include "driver/zoo/families.h"
#include "driver/zoo/layers.h"

namespace tilewright::nets {

namespace {

using Layer = Value (*)(GraphBuilder&, const std::string&, const Value&, const RecurrentSpec&);

void tagger(GraphBuilder& b, const ZooSettings& s, const std::string& name, Layer layer) {
    constexpr int64_t kVocabulary = 10000;
    constexpr int64_t kTags = 17;  // the universal parts of speech
    const Value ids = b.input("ids", DType::I64, {batch_extent(s), seq_extent(s)}, kVocabulary);
    Value x = transpose(b, embedding(b, "embedding", ids, kVocabulary, s.at("embedding")), {1, 0, 2});
    for (int64_t i = 0; i < s.at("layers"); ++i) {
        x = layer(b, name + "." + std::to_string(i), x, {.hidden = s.at("hidden"), .bidirectional = true});
    }
    b.output(linear(b, "tags", transpose(b, x, {1, 0, 2}), kTags), "scores");
}

}  // namespace

void add_sequence_taggers(std::vector<Recipe>& recipes) {
    const std::vector<ZooOption> options = {batch_option(0), seq_option(0, 65536),
                                            number_option("embedding", 128, 4096, "width of a word"),
                                            number_option("hidden", 128, 4096, "width of each direction's state"),
                                            number_option("layers", 2, 16, "recurrent layers")};
    recipes.push_back({"lstm_tagger", "bidirectional LSTMs over embeddings; symbolic batch and seq", options,
                       [](GraphBuilder& b, const ZooSettings& s) { tagger(b, s, "lstm", lstm); }});
    recipes.push_back({"gru_tagger", "bidirectional GRUs over embeddings; symbolic batch and seq", options,
                       [](GraphBuilder& b, const ZooSettings& s) { tagger(b, s, "gru", gru); }});
}

}  // namespace tilewright::nets
