#pragma once
// How fast a decoder reads a prompt and generates from it, with a KV cache: `tilewright bench --decode`.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/compiled_model.h"
#include "model/session.h"

namespace tilewright {

/// The tensors that a step gives a decoder, by the declarations of its inputs: integers are tokens, or positions where
/// the name contains "position"; a name that contains "mask" is all ones, as long as all rows; other numbers are
/// random.
class DecoderInputs {
  public:
    /// `sizes`: of named dimensions that are neither the step's tokens nor rows of the cache; 1 where there is none.
    /// Throws ModelError where the model has no KV cache, or its rows are not one dimension of its inputs.
    DecoderInputs(const CompiledModel& model, std::map<std::string, int64_t> sizes);
    /// The inputs by position, empty tensors for those in the cache. `tokens`: of each sequence the same.
    std::vector<Tensor> step(const std::vector<int64_t>& tokens, int64_t past) const;

  private:
    int64_t size_of(Expr dimension, bool mask, int64_t tokens, int64_t past) const;

    std::vector<ModelIo> inputs_;
    std::vector<bool> held_;
    std::map<std::string, int64_t> sizes_;
    Var rows_, step_;
};

/// The output that has scores of the next token, f32 [..., tokens, vocabulary]. Throws ModelError where there is none.
size_t logits_of(const CompiledModel& model);
/// The token with the highest score behind the last one, of the first sequence; the first of equal ones.
int64_t likeliest(const Tensor& logits);

struct DecodeTimes {
    double prompt_ms = 0;  ///< of the prompt: until the first token is known
    std::vector<double> token_ms;
    std::vector<int64_t> tokens;  ///< as generated, the likeliest each time
    double bytes = 0;             ///< of weights, cache and vectors that the products of the last step read and write
    double read_gbps = 0;         ///< from memory, by as many threads, in the same run
    std::vector<std::vector<StepTime>> profiled;  ///< further steps behind those, with the times of their kernels
    RunCounts counts;                             ///< of the session
    int64_t cache_bytes = 0;
};

/// Generates `tokens` tokens behind a prompt of `prompt` made-up ones, once to warm up and once timed.
DecodeTimes time_decoding(const std::shared_ptr<const CompiledModel>& model,
                          const std::map<std::string, int64_t>& sizes, int threads, int64_t prompt, int tokens);

}  // namespace tilewright
