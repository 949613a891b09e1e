#include <fmt/format.h>

#include <optional>

#include "artifact/model_reader.h"
#include "backend/cpu/shared_object_view.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "opaque/custom.h"

namespace tilewright::artifact {

namespace {

cpu::SharedObjectView view_of(std::string_view bytes, const std::string& path) {
    try {
        return cpu::view_shared_object(bytes, kTableMagic, kModelAbi);
    } catch (const ModelError& e) {
        throw ModelError(fmt::format("'{}': {}", path, e.what()), e.hint());
    }
}

}  // namespace

ModelFileInfo inspect_model_file(const std::string& path) {
    const auto file = std::make_shared<const MappedFile>(path);
    const std::string_view bytes = file->bytes();
    std::optional<ModelTrailer> trailer;  // archives have none
    if (!bytes.starts_with(kArchiveMagic)) trailer = checked_trailer(bytes, path);
    const cpu::SharedObjectView view = view_of(bytes, path);
    check_interface(view.abi, path);
    std::vector<std::vector<cpu::KernelFn>> no_code;
    std::vector<VariantParts> variants;
    for (const cpu::SharedObjectView::Variant& v : view.variants) {
        no_code.emplace_back(v.kernels, nullptr);
        variants.push_back({v.plan, no_code.back()});
    }
    const std::span weights(reinterpret_cast<const std::byte*>(view.weights.data()), view.weights.size());
    if (trailer) check_weights(*trailer, weights, path);
    const CustomOperators any = CustomOperators::any();
    ModelFileInfo out = read_variants(variants, weights, file, path, false, {&any});
    out.file_bytes = bytes.size();
    return out;
}

}  // namespace tilewright::artifact
