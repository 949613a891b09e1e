#pragma once
// What reading a compiled model's file to run it and reading it to describe it have in common.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "artifact/model_file.h"
#include "artifact/model_trailer.h"

namespace tilewright::artifact {

/// Throws ModelError unless these are the bytes of a shared object with its trailer, and all but the weights have the
/// checksum that is there.
ModelTrailer checked_trailer(std::string_view bytes, const std::string& path);

/// Throws ModelError unless these are the file's weights. They are also stored at `to` unless that is null.
void check_weights(const ModelTrailer& trailer, std::span<const std::byte> weights, const std::string& path,
                   std::byte* to = nullptr);

/// Throws ModelError unless this is kModelAbi.
void check_interface(uint32_t abi, const std::string& path);

struct VariantParts {
    std::string_view plan;
    std::span<const cpu::KernelFn> kernels;
};

/// What read_plan takes beside the file.
struct ReadWith {
    const CustomOperators* operators = nullptr;
    std::function<MakeFallback()> fallback = {};
    bool copy_weights = false;  ///< see load_model_file
};

/// The model of the last variant that runs here, with these weights; where none does, of the first one, or for `to_run`
/// a ModelError with what this CPU lacks. ModelErrors name the file. `owner` keeps its bytes and code.
ModelFileInfo read_variants(std::span<const VariantParts> variants, std::span<const std::byte> weights,
                            const std::shared_ptr<const void>& owner, const std::string& path, bool to_run,
                            const ReadWith& with);

}  // namespace tilewright::artifact
