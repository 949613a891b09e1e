#include "backend/cuda/lockstep.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "backend/cuda/device_text.h"
#include "backend/cuda/scalar_text.h"
#include "base/error.h"

extern char** environ;

namespace tilewright::cuda {

namespace {

namespace fs = std::filesystem;

/// tw::machine::Argument of device/run.cuh.
struct LockstepTensor {
    const char* name;
    void* bytes;
    long long size, element, written;
};
/// tw::machine::Map of it.
struct LockstepMap {
    long long of, rank, element, swizzle, extents[5], box[5];
};
using Entry = const char* (*)(const LockstepTensor* tensors, const long long* names, const LockstepMap* maps,
                              long long blocks);

/// A folder that goes with this object.
class TemporaryFolder {
  public:
    TemporaryFolder() {
        std::string pattern = (fs::temp_directory_path() / "tilewright-XXXXXX").string();
        if (mkdtemp(pattern.data()) == nullptr)
            throw RuntimeError(fmt::format("cannot create {}: {}", pattern, std::strerror(errno)));
        path = pattern;
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    fs::path path;
};

/// Runs a program to its end, what it says in `log`; its exit status, or 127 where there is none such.
int run_program(const std::vector<std::string>& words, const fs::path& log) {
    std::vector<char*> arguments;
    for (const std::string& w : words) arguments.push_back(const_cast<char*>(w.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    pid_t child = 0;
    const int failed = posix_spawnp(&child, arguments[0], &files, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    if (failed != 0) return 127;
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

std::string contents_of(const fs::path& path) {
    std::ifstream in(path);
    std::ostringstream s;
    s << in.rdbuf();
    return s.str();
}

/// What calls kernel k by the signature of Entry.
std::string entry_text(const KernelText& kernel, size_t k) {
    std::string arguments;
    for (size_t i = 0; i < kernel.tensors.size(); ++i)
        arguments += fmt::format("{}tw::machine::tensor<{}>(t[{}])", arguments.empty() ? "" : ", ",
                                 storage_type(kernel.tensors[i].dtype), i);
    if (kernel.scratch_bytes > 0) arguments += fmt::format(", tw::machine::tensor<u8>(t[{}])", kernel.tensors.size());
    for (size_t i = 0; i < kernel.names.size(); ++i)
        arguments += fmt::format("{}n[{}]", arguments.empty() ? "" : ", ", i);
    for (size_t i = 0; i < kernel.maps.size(); ++i) arguments += fmt::format(", tw::machine::tensor_map(t, m[{}])", i);
    return fmt::format(
        "extern \"C\" const char* tw_entry_{}(const tw::machine::Argument* tensors, const i64* names,\n"
        "                                    const tw::machine::Map* maps, i64 blocks) {{\n"
        "    struct Call {{ const i64* n; const tw::machine::Map* m; }} call = {{names, maps}};\n"
        "    return tw::machine::run_kernel(tensors, {}, blocks, {}, {},\n"
        "        [](const tw::machine::Memory* t, void* c) {{\n"
        "            const i64* n = static_cast<Call*>(c)->n;\n"
        "            const tw::machine::Map* m = static_cast<Call*>(c)->m;\n"
        "            (void)n, (void)m;\n"
        "            {}({});\n"
        "        }}, &call);\n"
        "}}\n",
        k, kernel.tensors.size() + (kernel.scratch_bytes > 0 ? 1 : 0), kernel.threads, kernel.shared_bytes, kernel.name,
        arguments);
}

}  // namespace

Lockstep::Lockstep(std::vector<KernelText> kernels, const LockstepOptions& options) : kernels_(std::move(kernels)) {
    const TemporaryFolder folder;
    const fs::path source = folder.path / "kernels.cpp", library = folder.path / "kernels.so",
                   log = folder.path / "log";
    {
        std::ofstream out(source);
        out << kDeviceEmulated << "\n" << kDeviceEmulatedMatrix << "\n" << kDeviceCommon << "\n" << kDeviceRun;
        for (size_t k = 0; k < kernels_.size(); ++k) out << "\n" << kernels_[k].text << entry_text(kernels_[k], k);
        if (!out.flush()) throw RuntimeError("cannot write " + source.string());
    }
    std::vector<std::string> words = {options.compiler, "-std=c++17", "-w", "-fPIC", "-shared", "-U_FORTIFY_SOURCE"};
    words.insert(words.end(), options.flags.begin(), options.flags.end());
    for (const char* w : {"-o", library.c_str(), source.c_str(), "-lm"}) words.emplace_back(w);
    if (const int status = run_program(words, log); status != 0) {
        if (status == 127)
            throw RuntimeError(
                fmt::format("kernels are emulated with the C++ compiler '{}', which cannot be run", options.compiler));
        const std::string said = contents_of(log);
        const size_t error = said.find("error:");
        const size_t begin = error == std::string::npos ? 0 : said.rfind('\n', error) + 1;
        throw RuntimeError(
            fmt::format("'{}' refuses the text of a kernel: {}", options.compiler, said.substr(begin, 2000)));
    }
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw RuntimeError(fmt::format("cannot load emulated kernels: {}", dlerror()));
    library_ = std::shared_ptr<void>(handle, [](void* h) { dlclose(h); });
    for (size_t k = 0; k < kernels_.size(); ++k) {
        entries_.push_back(dlsym(handle, fmt::format("tw_entry_{}", k).c_str()));
        TW_CHECK(entries_.back() != nullptr, "emulated kernel {} has an entry", k);
    }
}

void Lockstep::run(size_t k, std::vector<Tensor>& tensors, const std::vector<int64_t>& names, int64_t blocks) const {
    const KernelText& kernel = kernels_.at(k);
    TW_CHECK(tensors.size() == kernel.tensors.size() && names.size() == kernel.names.size(),
             "kernel '{}' takes {} tensors and {} names", kernel.name, kernel.tensors.size(), kernel.names.size());
    std::vector<LockstepTensor> arguments;
    for (size_t i = 0; i < tensors.size(); ++i) {
        const KernelText::Argument& a = kernel.tensors[i];
        TW_CHECK(tensors[i].dtype() == a.dtype, "tensor {} of kernel '{}' is {}", a.name, kernel.name,
                 to_string(a.dtype));
        if (a.written && tensors[i].bytes() > 0) std::memset(tensors[i].mutable_data(), 0xff, tensors[i].bytes());
        arguments.push_back({a.name.c_str(), tensors[i].mutable_data(), static_cast<long long>(tensors[i].bytes()),
                             static_cast<long long>(byte_size(a.dtype)), a.written ? 1 : 0});
    }
    std::vector<std::byte> scratch(static_cast<size_t>(kernel.scratch_bytes * blocks));
    if (kernel.scratch_bytes > 0)
        arguments.push_back({"scratch", scratch.data(), static_cast<long long>(scratch.size()), 1, 2});
    const std::vector<long long> values(names.begin(), names.end());
    Bindings bindings;
    for (size_t i = 0; i < names.size(); ++i) bindings[kernel.names[i]] = names[i];
    std::vector<LockstepMap> maps;
    for (const KernelText::Map& m : kernel.maps) {
        LockstepMap out = {static_cast<long long>(m.tensor),
                           static_cast<long long>(m.extents.size()),
                           static_cast<long long>(byte_size(kernel.tensors[m.tensor].dtype)),
                           m.swizzle,
                           {},
                           {}};
        for (size_t d = 0; d < m.extents.size(); ++d) {
            out.extents[d] = evaluate(m.extents[d], bindings);
            out.box[d] = m.box[d];
        }
        maps.push_back(out);
    }
    const char* wrong = reinterpret_cast<Entry>(entries_[k])(arguments.data(), values.data(), maps.data(), blocks);
    if (wrong != nullptr) throw RuntimeError(fmt::format("kernel '{}', {}", kernel.name, wrong));
}

std::vector<Tensor> Lockstep::run(size_t k, const Program& stages, const std::vector<Tensor>& inputs,
                                  Bindings bindings) const {
    const KernelText& kernel = kernels_.at(k);
    for (size_t i = 0; i < inputs.size(); ++i) {
        const Value& declared = stages.values[stages.inputs[i]];
        bind_shape(bindings, declared.shape, inputs[i].shape(), declared.name);
    }
    std::vector<Tensor> tensors = inputs;
    for (const ValueId v : stages.outputs)
        tensors.emplace_back(stages.values[v].dtype, evaluate(stages.values[v].shape, bindings));
    std::vector<int64_t> names;
    for (const Var v : kernel.names) names.push_back(bindings.at(v));
    int64_t blocks = 1;
    for (const Expr& g : kernel.grid) blocks *= evaluate(g, bindings);
    run(k, tensors, names, blocks);
    return {tensors.begin() + static_cast<std::ptrdiff_t>(inputs.size()), tensors.end()};
}

}  // namespace tilewright::cuda
