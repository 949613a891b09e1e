#include "artifact/model_file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "backend/cpu/shared_object.h"
#include "base/error.h"
#include "base/keyed_hash.h"

namespace tilewright::artifact {

namespace {

constexpr std::string_view kTableMagic("TWMODEL", 8);
// Behind the shared object: the hash of its bytes, then a magic.
constexpr std::string_view kTrailerMagic("TWEND\r\n", 8);
constexpr size_t kFileHashBytes = 32, kTrailerBytes = kFileHashBytes + 8;

static_assert(sizeof(ModelTable) == 56 && offsetof(ModelTable, plan) == 16 && offsetof(ModelTable, weights) == 32 &&
              offsetof(ModelTable, kernels) == 48);

/// A file's bytes, mapped.
class MappedFile {
  public:
    explicit MappedFile(const std::string& path) {
        const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        struct stat status {};
        if (file >= 0 && ::fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
            size_ = static_cast<size_t>(status.st_size);
            data_ = size_ > 0 ? ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
        }
        if (file >= 0) ::close(file);
        if (data_ == MAP_FAILED) throw RuntimeError(fmt::format("cannot read '{}'", path));
    }
    ~MappedFile() { ::munmap(data_, size_); }
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

  private:
    void* data_ = MAP_FAILED;
    size_t size_ = 0;
};

/// The dynamic loader trusts a file's tables: a damaged file must not reach it. Returns the size of the file.
uint64_t check_file(const std::string& path) {
    const MappedFile file(path);
    const std::string_view bytes = file.bytes();
    if (bytes.substr(0, 4) != "\177ELF") model_error("'{}' is no compiled model", path);
    if (bytes.size() < kTrailerBytes || bytes.substr(bytes.size() - kTrailerMagic.size()) != kTrailerMagic)
        throw ModelError(fmt::format("'{}' is no compiled model, or is cut off: its last bytes are missing", path),
                         "`tilewright compile` makes such files; strip and similar tools damage them");
    const std::string_view object = bytes.substr(0, bytes.size() - kTrailerBytes);
    if (plain_hash(object) != bytes.substr(object.size(), kFileHashBytes))
        model_error("'{}' is damaged: its content does not have the hash at its end", path);
    return bytes.size();
}

std::shared_ptr<void> loaded(const std::string& path) {
    void* handle = ::dlopen(std::filesystem::absolute(path).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char* why = ::dlerror();
        throw RuntimeError(fmt::format("cannot load '{}': {}", path, why != nullptr ? why : "no reason given"));
    }
    return {handle, [](void* h) { ::dlclose(h); }};
}

void check_cpu(const About& about, const std::string& path) {
    const Target host = host_target();
    if (about.arch != host.arch)
        model_error("'{}' was compiled for {}, and this machine is {}", path, about.arch, host.arch);
    std::vector<std::string> missing;
    for (const std::string& f : about.features)
        if (!host.has(f)) missing.push_back(f);
    if (!missing.empty())
        throw ModelError(
            fmt::format("'{}' was compiled for {}, and this CPU does not have {}", path,
                        about.cpu.empty() ? std::string(to_string(about.isa)) : about.cpu, fmt::join(missing, ", ")),
            "compile with --isa of the least CPU that it should run on");
}

ModelFileInfo open_model_file(const std::string& path, bool to_run) {
    ModelFileInfo out;
    out.file_bytes = check_file(path);
    const std::shared_ptr<void> library = loaded(path);
    const auto* table = static_cast<const ModelTable*>(::dlsym(library.get(), kModelSymbol));
    if (table == nullptr || std::string_view(table->magic, sizeof table->magic) != kTableMagic)
        model_error("'{}' is no compiled model: it has no symbol {}", path, kModelSymbol);
    if (table->abi != kModelAbi)
        model_error("'{}' has version {} of the interface to its code, and this build has {}", path, table->abi,
                    kModelAbi);
    const std::string_view plan(table->plan, table->plan_bytes);
    try {
        out.about = read_about(plan);
        if (to_run) check_cpu(out.about, path);
        out.model =
            read_plan(plan, {table->weights, table->weight_bytes}, {table->kernels, table->kernel_count}, library);
    } catch (const ModelError& e) {
        const std::string_view what = e.what();
        if (what.find(path) != std::string_view::npos) throw;
        throw ModelError(fmt::format("'{}': {}", path, what), e.hint());
    }
    out.plan_bytes = table->plan_bytes;
    out.weight_bytes = table->weight_bytes;
    out.kernels = table->kernel_count;
    return out;
}

}  // namespace

bool is_model_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    char magic[4] = {};
    return file.read(magic, sizeof magic) && std::string_view(magic, 4) == "\177ELF";
}

void write_model_file(std::shared_ptr<const CompiledModel> model, const std::string& model_hash,
                      const std::string& path) {
    const PlanFile plan = write_plan(std::move(model), model_hash);
    cpu::SharedObject object;
    object.symbol = kModelSymbol;
    object.magic = kTableMagic;
    object.abi = kModelAbi;
    object.plan = plan.bytes;
    for (const cpu::CompiledKernel* k : plan.kernels) {
        TW_CHECK(!k->object.empty(), "kernel '{}' was compiled without its object file", k->name);
        object.kernels.push_back(k->object);
    }
    for (const Weights::Block& b : plan.weights.blocks)
        object.weights.push_back({b.offset, {static_cast<const char*>(b.tensor.data()), b.tensor.bytes()}});
    object.weight_bytes = plan.weights.bytes;

    const std::string part = fmt::format("{}.{}.part", path, ::getpid());
    std::error_code error;
    try {
        cpu::link_shared_object(object, part);
        const std::string hash = plain_hash(MappedFile(part).bytes());
        std::ofstream file(part, std::ios::binary | std::ios::app);
        file << hash << kTrailerMagic;
        file.close();
        if (!file) throw RuntimeError(fmt::format("cannot write '{}'", path));
        std::filesystem::rename(part, path, error);
        if (error) throw RuntimeError(fmt::format("cannot write '{}': {}", path, error.message()));
    } catch (...) {
        std::filesystem::remove(part, error);
        throw;
    }
}

std::shared_ptr<const CompiledModel> load_model_file(const std::string& path) {
    return open_model_file(path, true).model;
}

ModelFileInfo inspect_model_file(const std::string& path) { return open_model_file(path, false); }

}  // namespace tilewright::artifact
