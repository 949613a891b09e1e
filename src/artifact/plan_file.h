#pragma once
// A compiled model as bytes: all that running it needs but machine code and weights, which stand beside it. The format
// is described in docs/artifacts.md.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/tensor.h"
#include "model/compiled_model.h"
#include "runtime/cpu_features.h"
#include "runtime/kernel.h"
#include "runtime/model_info.h"

namespace tilewright {
class CustomOperators;
}

namespace tilewright::artifact {

/// Raised with every change of the bytes: a file of another version is refused.
inline constexpr uint32_t kFormatVersion = 6;

/// What a model was compiled from.
struct ModelOrigin {
    std::string hash;  ///< BLAKE3 of the model's file, in hexadecimal digits
    ModelInfo info;
};

/// What a compiled model says of itself.
struct About {
    std::string compiler;  ///< "Tilewright 0.9.0"
    ModelOrigin origin;
    Platform platform;
};

/// Contents of constants, each once. A tensor's bytes begin at its offset, a multiple of 64.
struct Weights {
    struct Block {
        uint64_t offset = 0;
        Tensor tensor;
    };
    std::vector<Block> blocks;
    uint64_t bytes = 0;  ///< of all; 64 bytes may be read behind the last tensor
};

/// Finds the places of constants.
class WeightsWriter {
  public:
    uint64_t place(const Tensor& t);
    Weights finished() { return std::move(weights_); }

  private:
    Weights weights_;
    std::unordered_map<std::string, uint64_t> by_content_;
};

struct PlanFile {
    std::string bytes;
    /// In the order in which read_plan takes their code. Those of the strict model, where there is one, come last.
    std::vector<const cpu::CompiledKernel*> kernels;
    std::shared_ptr<const CompiledModel> model;
};

using MakeFallback = std::function<std::shared_ptr<const CompiledModel>()>;

/// BLAKE3, in hexadecimal digits.
std::string content_hash(std::string_view bytes);
/// The same of a file (plain_hash_of_file).
std::string content_hash_of_file(const std::string& path);

// plan_writer.cpp

/// Whether a plan has the strict model that repeats a run whose check failed.
enum class SavedFallback : uint8_t {
    None,       ///< the model has no checks
    Included,   ///< it is compiled, and behind the model
    Elsewhere,  ///< the caller of read_plan gives it
};

/// Equal compilations give equal bytes. `weights`: where the constants go. `include_fallback`: compiles the model's
/// fallback if it has one. Throws ModelError for a model that is for a GPU, has no code or has kernels of a library,
/// and naming an operator that has no text.
PlanFile write_plan(std::shared_ptr<const CompiledModel> model, const ModelOrigin& origin, WeightsWriter& weights,
                    bool include_fallback = true);

// plan_reader.cpp

/// The header alone. Throws ModelError for bytes that are no plan, another version's, or damaged.
About read_about(std::string_view bytes);

/// The model. `code` has a function for each of PlanFile::kernels; code and weights are kept alive by `owner`, and
/// must have been read from the same file. `fallback` makes MakeFallback of SavedFallback::Elsewhere. `operators`:
/// those of the caller that the model may call; may be null. Throws as read_about does, where they do not fit the plan,
/// and where a fallback that is elsewhere or an operator is not given.
std::shared_ptr<const CompiledModel> read_plan(std::string_view bytes, std::span<const std::byte> weights,
                                               std::span<const cpu::KernelFn> code,
                                               const std::shared_ptr<const void>& owner,
                                               const std::function<MakeFallback()>& fallback = {},
                                               const CustomOperators* operators = nullptr);

}  // namespace tilewright::artifact
