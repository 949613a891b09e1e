#include <dlfcn.h>
#include <elf.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "artifact/model_reader.h"
#include "artifact/model_trailer.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "opaque/custom.h"
#include "runtime/arena.h"
#include "runtime/missing_features.h"

namespace tilewright::artifact {

namespace {

/// That of an ELF file.
std::string_view arch_of(std::string_view bytes) {
    Elf64_Ehdr header{};
    std::memcpy(&header, bytes.data(), std::min(bytes.size(), sizeof header));
    return header.e_machine == EM_X86_64 ? "x86_64" : header.e_machine == EM_AARCH64 ? "aarch64" : "another machine";
}

/// Where a file is, and how messages name it.
struct Place {
    std::string path, name;
};

/// A path to the open file that no earlier dlopen has had, in a spelling of its own. The dynamic linker takes a path
/// for an object that is still loaded by the text alone, and descriptors are used again while a second copy of the
/// handle keeps the object.
///     fd 5, sixth call (0b101)  ->  /proc/self/.//./fd/5
std::string path_of_its_own(int file) {
    static std::atomic<uint64_t> calls{0};
    std::string path = "/proc/self";
    for (uint64_t n = calls.fetch_add(1); n != 0; n /= 2) path += n % 2 == 1 ? "/." : "/";
    return fmt::format("{}/fd/{}", path, file);
}

/// What is known of a file before it is loaded.
struct CheckedFile {
    ModelTrailer trailer;
    uint64_t bytes = 0;
};

/// The dynamic loader trusts a file's tables: a damaged file must not reach it.
CheckedFile checked(const MappedFile& file, const std::string& path) {
    const std::string_view bytes = file.bytes();
    if (bytes.starts_with(kArchiveMagic))
        throw ModelError(fmt::format("'{}' is an archive, which programs are linked with", path),
                         "`tilewright compile model.onnx -o NAME.so` writes a file that can be loaded");
    const ModelTrailer trailer = checked_trailer(bytes, path);
    if (const std::string_view arch = arch_of(bytes); arch != kHostArch)
        model_error("'{}' was compiled for {}, and this machine is {}", path, arch, kHostArch);
    return {trailer, bytes.size()};
}

/// The loaded file, which keeps `owner` until it is closed.
std::shared_ptr<void> loaded(const Place& from, std::shared_ptr<const void> owner = nullptr) {
    void* handle = ::dlopen(std::filesystem::absolute(from.path).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char* why = ::dlerror();
        throw RuntimeError(fmt::format("cannot load '{}': {}", from.name, why != nullptr ? why : "no reason given"));
    }
    return {handle, [owner = std::move(owner)](void* h) { ::dlclose(h); }};
}

bool is_table(const ModelTable& table) { return std::string_view(table.magic, sizeof table.magic) == kTableMagic; }

const ModelTable& table_of(const std::shared_ptr<void>& library, const std::string& path) {
    const auto* table = static_cast<const ModelTable*>(::dlsym(library.get(), kModelSymbol));
    if (table == nullptr || !is_table(*table))
        model_error("'{}' is no compiled model: it has no symbol {}", path, kModelSymbol);
    check_interface(table->abi, path);
    return *table;
}

[[noreturn]] void refuse_cpu(const Platform& wanted, const std::vector<std::string>& here, const std::string& path) {
    if (wanted.arch != kHostArch)
        model_error("'{}' was compiled for {}, and this machine is {}", path, wanted.arch, kHostArch);
    throw ModelError(fmt::format("'{}' was compiled for {}, and this CPU does not have {}", path,
                                 wanted.cpu.empty() ? std::string(to_string(wanted.isa)) : wanted.cpu,
                                 fmt::join(missing_features(wanted, here), ", ")),
                     "compile with --isa of the least CPU that it should run on");
}

ModelFileInfo read_table(const ModelTable& table, std::span<const std::byte> weights,
                         const std::shared_ptr<const void>& owner, const std::string& path, const ReadWith& with) {
    std::vector<VariantParts> variants;
    for (const ModelVariant& v : std::span(table.variants, table.variant_count))
        variants.push_back({{v.plan, v.plan_bytes}, {v.kernels, v.kernel_count}});
    return read_variants(variants, weights, owner, path, true, with);
}

ModelFileInfo open_model_file(const Place& from, const CheckedFile& file, const ReadWith& with) {
    const std::string& path = from.name;
    const std::shared_ptr<void> library = loaded(from);
    const ModelTable& table = table_of(library, path);
    std::span<const std::byte> weights = {table.weights, table.weight_bytes};
    std::shared_ptr<const void> owner = library;
    std::byte* to = nullptr;
    if (with.copy_weights && !weights.empty()) {
        const auto copy = std::make_shared<std::pair<Arena, std::shared_ptr<void>>>(Arena(), library);
        copy->first.reserve(static_cast<int64_t>(weights.size()));
        to = copy->first.data();
        owner = copy;
    }
    check_weights(file.trailer, weights, path, to);
    if (to != nullptr) weights = {to, weights.size()};
    ModelFileInfo out = read_table(table, weights, owner, path, with);
    out.file_bytes = file.bytes;
    return out;
}

[[noreturn]] void refuse_damaged(const std::string& path) {
    model_error("'{}' is damaged: its content does not have the checksum at its end", path);
}

}  // namespace

ModelTrailer checked_trailer(std::string_view bytes, const std::string& path) {
    if (bytes.substr(0, 4) != "\177ELF") model_error("'{}' is no compiled model", path);
    const std::string_view magic = bytes.substr(bytes.size() - std::min(bytes.size(), kTrailerMagic.size()));
    constexpr size_t kVersionAt = kTrailerMagic.size() - 1;
    if (magic != kTrailerMagic && magic.substr(0, kVersionAt) == kTrailerMagic.substr(0, kVersionAt))
        throw ModelError(fmt::format("'{}' has version {} of the end of compiled models, and this build reads {}", path,
                                     magic[kVersionAt] - '\0', kTrailerMagic[kVersionAt] - '\0'),
                         "compile the model again");
    if (bytes.size() < sizeof(ModelTrailer) || magic != kTrailerMagic)
        throw ModelError(fmt::format("'{}' is no compiled model, or is cut off: its last bytes are missing", path),
                         "`tilewright compile` makes such files; strip and similar tools damage them");
    const std::string_view object = bytes.substr(0, bytes.size() - sizeof(ModelTrailer));
    ModelTrailer trailer;
    std::memcpy(&trailer, bytes.data() + object.size(), sizeof trailer);
    if (!trailer.has_places_in(object) || trailer.rest_of(object) != trailer.rest) refuse_damaged(path);
    return trailer;
}

void check_weights(const ModelTrailer& trailer, std::span<const std::byte> weights, const std::string& path,
                   std::byte* to) {
    const std::string_view bytes = {reinterpret_cast<const char*>(weights.data()), weights.size()};
    if (bytes.size() != trailer.weight_bytes || pieces_checksum(bytes, to) != trailer.weights) refuse_damaged(path);
}

void check_interface(uint32_t abi, const std::string& path) {
    if (abi != kModelAbi)
        model_error("'{}' has version {} of the interface to its code, and this build has {}", path, abi, kModelAbi);
}

ModelFileInfo read_variants(std::span<const VariantParts> variants, std::span<const std::byte> weights,
                            const std::shared_ptr<const void>& owner, const std::string& path, bool to_run,
                            const ReadWith& with) {
    try {
        ModelFileInfo out;
        out.weight_bytes = weights.size();
        std::vector<About> abouts;
        for (const VariantParts& v : variants) {
            abouts.push_back(read_about(v.plan));
            out.variants.push_back({abouts.back().platform, v.plan.size(), v.kernels.size()});
        }
        if (abouts.empty()) model_error("'{}' has no model", path);
        const std::vector<std::string> here = host_features();
        const std::optional<size_t> runs = variant_for(out.variants, here);
        if (!runs && to_run) refuse_cpu(abouts[0].platform, here, path);
        const VariantParts& v = variants[runs.value_or(0)];
        out.about = std::move(abouts[runs.value_or(0)]);
        out.model = read_plan(v.plan, weights, v.kernels, owner, with.fallback, with.operators);
        return out;
    } catch (const ModelError& e) {
        const std::string_view what = e.what();
        if (what.find(path) != std::string_view::npos) throw;
        throw ModelError(fmt::format("'{}': {}", path, what), e.hint());
    }
}

std::optional<size_t> variant_for(const std::vector<ModelFileInfo::Variant>& variants,
                                  const std::vector<std::string>& features) {
    for (size_t v = variants.size(); v-- > 0;)
        if (variants[v].platform.arch == kHostArch && missing_features(variants[v].platform, features).empty())
            return v;
    return std::nullopt;
}

bool is_model_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    char magic[8] = {};
    const bool read = static_cast<bool>(file.read(magic, sizeof magic));
    return read && (std::string_view(magic, 4) == "\177ELF" || std::string_view(magic, 8) == kArchiveMagic);
}

ModelFileInfo load_model_file(const std::string& path, const CustomOperators* operators, bool copy_weights) {
    return open_model_file({path, path}, checked(MappedFile(path), path), {operators, {}, copy_weights});
}

ModelFileInfo load_model_file(int file, const std::string& name) {
    return open_model_file({path_of_its_own(file), name}, checked(MappedFile(file, name), name), {});
}

ModelFileInfo load_linked_model(const ModelTable& table, const CustomOperators* operators) {
    const std::string name = "linked model";
    if (!is_table(table))
        model_error("the address is not of a model's table: give that of the header beside the archive");
    check_interface(table.abi, name);
    return read_table(table, {table.weights, table.weight_bytes}, nullptr, name, {operators});
}

ModelFileInfo load_model_object(int file, std::span<const std::byte> weights, std::shared_ptr<const void> owner,
                                const std::function<MakeFallback()>& fallback) {
    const std::string path = path_of_its_own(file);
    const std::shared_ptr<void> library = loaded({path, path}, std::move(owner));
    return read_table(table_of(library, path), weights, library, path, {nullptr, fallback});
}

}  // namespace tilewright::artifact
