// Generates tokens from a decoder, each the most likely one.
//
//     generate DECODER.onnx [TOKENS] [PROMPT...]
//
// The decoder takes `input_ids` [batch, tokens], perhaps `position_ids` and `attention_mask`, and past keys and values;
// it returns `logits` [batch, tokens, vocabulary]. Keys and values stay in a KV cache, to which every run appends.
// Prints the tokens, and how many a second.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tilewright/tilewright.hpp>
#include <vector>

namespace {

class Decoder {
  public:
    Decoder(const std::string& path, std::int64_t most_tokens)
        : model_(tw::Model::from_file(path, options())), session_(model_), cache_(model_, most_tokens) {
        const std::vector<tw::Io> outputs = model_.outputs();
        for (std::size_t i = 0; i < outputs.size(); ++i)
            if (outputs[i].name == "logits") logits_ = i;
        if (logits_ == outputs.size()) throw std::runtime_error("the decoder has no output 'logits'");
    }

    /// Reads the tokens, and returns the most likely one behind them.
    std::int64_t next(const std::vector<std::int64_t>& tokens) {
        const auto count = static_cast<std::int64_t>(tokens.size()), before = cache_.rows();
        std::vector<std::int64_t> positions(tokens.size()), mask(static_cast<std::size_t>(before + count), 1);
        std::iota(positions.begin(), positions.end(), before);
        std::vector<tw::Tensor> inputs;
        for (const tw::Io& input : model_.inputs()) {
            if (input.name == "input_ids")
                inputs.push_back(tw::tensor(tokens, {1, count}));
            else if (input.name == "position_ids")
                inputs.push_back(tw::tensor(positions, {1, count}));
            else if (input.name == "attention_mask")
                inputs.push_back(tw::tensor(mask, {1, before + count}));
            else
                inputs.emplace_back();  // in the cache
        }
        tw::RunOptions run;
        run.kv_cache = &cache_;
        const tw::Tensor logits = session_.run(inputs, run).at(logits_);
        const auto vocabulary = logits.shape.back();
        const float* last = logits.as<float>() + (count - 1) * vocabulary;
        return std::max_element(last, last + vocabulary) - last;
    }

  private:
    static tw::Options options() {
        tw::Options o;
        o.kv_cache = true;
        return o;
    }

    tw::Model model_;
    tw::Session session_;
    tw::KvCache cache_;
    std::size_t logits_ = model_.outputs().size();
};

}  // namespace

int main(int argc, char** argv) try {
    if (argc < 2) {
        std::fprintf(stderr, "usage: generate DECODER.onnx [TOKENS] [PROMPT...]\n");
        return 2;
    }
    const std::int64_t tokens = argc > 2 ? std::stoll(argv[2]) : 16;
    std::vector<std::int64_t> prompt;
    for (int i = 3; i < argc; ++i) prompt.push_back(std::stoll(argv[i]));
    if (prompt.empty()) prompt = {1};

    Decoder decoder(argv[1], static_cast<std::int64_t>(prompt.size()) + tokens);
    std::int64_t token = decoder.next(prompt);
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < tokens; ++i) {
        std::printf("%lld%c", static_cast<long long>(token), i + 1 < tokens ? ' ' : '\n');
        if (i + 1 < tokens) token = decoder.next({token});
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (tokens > 1) std::fprintf(stderr, "%.0f tokens/s\n", static_cast<double>(tokens - 1) / took.count());
    return 0;
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
