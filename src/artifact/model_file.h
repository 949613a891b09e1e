#pragma once
// A compiled model as one ELF shared object, or as a static archive: machine code, plan and weights. docs/artifacts.md
// describes the file.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "artifact/plan_file.h"

namespace tilewright::artifact {

/// The exported symbol is one such table. Its name stands for its first two fields; the others belong to the version of
/// the interface.
inline constexpr const char* kModelSymbol = "tilewright_model_v1";
inline constexpr uint32_t kModelAbi = 2;

/// The model for one set of instructions.
struct ModelVariant {
    const char* plan;
    uint64_t plan_bytes;
    const cpu::KernelFn* kernels;
    uint64_t kernel_count;
};

struct ModelTable {
    char magic[8];
    uint32_t abi;
    uint32_t variant_count;
    const ModelVariant* variants;
    const std::byte* weights;
    uint64_t weight_bytes;
};

struct ModelFileInfo {
    struct Variant {
        Platform platform;
        uint64_t plan_bytes = 0, kernels = 0;
    };
    About about;                    ///< of the variant that `model` is
    std::vector<Variant> variants;  ///< all, in the file's order
    uint64_t file_bytes = 0, weight_bytes = 0;
    std::shared_ptr<const CompiledModel> model;
};

/// One model, compiled once or several times, each time for other instructions. A CPU runs the last one that it can.
/// All are for one architecture.
using Compilations = std::vector<std::shared_ptr<const CompiledModel>>;

/// The last variant that runs on a machine of this architecture with these features. nullopt: none does.
std::optional<size_t> variant_for(const std::vector<ModelFileInfo::Variant>& variants,
                                  const std::vector<std::string>& features);

/// Whether the file begins as a shared object or an archive does. False for a file that cannot be read.
bool is_model_file(const std::string& path);

/// Writes a model that was compiled with CompileOptions::keep_objects and without libraries. Constants of equal content
/// are in the file once. Equal compilations give equal bytes. Readers see the old file or the new one, never a part.
/// Returns what the file has, with the first model. Throws as write_plan does, and RuntimeError where the file cannot
/// be written.
ModelFileInfo write_model_file(const Compilations& models, const ModelOrigin& origin, const std::string& path);

/// The bytes of such a file.
std::string model_file_bytes(const Compilations& models, const ModelOrigin& origin);

/// Loads the file without compiling anything. Machine code of the file will run: load files of trusted origin only.
/// Throws ModelError that names the file: it is no compiled model, is damaged, has another version, or needs
/// instructions that this CPU does not have, which are listed, or an operator that is not among `operators` (may be
/// null).
/// `copy_weights`: into memory of its own, on huge pages, in place of the file's mapping, which processes share.
ModelFileInfo load_model_file(const std::string& path, const CustomOperators* operators = nullptr,
                              bool copy_weights = false);
/// The same for an open file, which may be closed afterwards. `name` stands for it in messages.
ModelFileInfo load_model_file(int file, const std::string& name);

/// What a file or an archive has, for this machine or another, without loading anything of it. The model is that of the
/// last variant that runs here, otherwise of the first one, and has neither code nor operators: it must not be run.
/// Throws ModelError as load_model_file does.
ModelFileInfo inspect_model_file(const std::string& path);

/// Writes the same as a static archive to link programs with; `symbol` is its table.
ModelFileInfo write_model_archive(const Compilations& models, const ModelOrigin& origin, const std::string& path,
                                  const std::string& symbol);

/// The model of such an archive that is linked into this program. Throws ModelError as load_model_file does.
ModelFileInfo load_linked_model(const ModelTable& table, const CustomOperators* operators = nullptr);

/// A model in two parts: a shared object with code and plan, and weights beside it. The code cache keeps models so.
struct ModelObject {
    std::string bytes;  ///< of the shared object
    Weights weights;
};

/// Without the strict model. Throws as write_model_file does.
ModelObject write_model_object(std::shared_ptr<const CompiledModel> model, const ModelOrigin& origin);

/// Loads such a model for this CPU. `file`: open, begins with the object, trusted (no hash is computed) and not changed
/// while the model is used; `weights`: 64-byte aligned. `owner` keeps file and weights. `fallback`: see
/// read_plan. Throws ModelError and RuntimeError where it cannot be loaded.
ModelFileInfo load_model_object(int file, std::span<const std::byte> weights, std::shared_ptr<const void> owner,
                                const std::function<MakeFallback()>& fallback);

}  // namespace tilewright::artifact
