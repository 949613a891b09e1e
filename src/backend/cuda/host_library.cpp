#include "backend/cuda/host_library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"

extern char** environ;

namespace tilewright::cuda {

namespace {

namespace fs = std::filesystem;

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

/// Writes the text to a file, and runs the compiler on it with these words; throws RuntimeError with its first error.
void compile(const TemporaryFolder& folder, const std::string& text, const LockstepOptions& options,
             const std::vector<std::string>& words, const fs::path& result) {
    const fs::path source = folder.path / "kernels.cpp", log = folder.path / "log";
    if (!(std::ofstream(source) << text).flush()) throw RuntimeError("cannot write " + source.string());
    std::vector<std::string> all = {options.compiler, "-std=c++17", "-w"};
    all.insert(all.end(), words.begin(), words.end());
    for (const char* w : {"-o", result.c_str(), source.c_str()}) all.emplace_back(w);
    if (all[3] != "-E") all.emplace_back("-lm");
    const int status = run_program(all, log);
    if (status == 0) return;
    if (status == 127)
        throw RuntimeError(
            fmt::format("kernels are emulated with the C++ compiler '{}', which cannot be run", options.compiler));
    const std::string said = contents_of(log);
    const size_t error = said.find("error:");
    const size_t begin = error == std::string::npos ? 0 : said.rfind('\n', error) + 1;
    throw RuntimeError(
        fmt::format("'{}' refuses the text of a kernel: {}", options.compiler, said.substr(begin, 2000)));
}

}  // namespace

HostLibrary::HostLibrary(const std::string& text, const LockstepOptions& options) {
    const TemporaryFolder folder;
    const fs::path library = folder.path / "kernels.so";
    std::vector<std::string> words = {"-fPIC", "-shared", "-U_FORTIFY_SOURCE"};
    words.insert(words.end(), options.flags.begin(), options.flags.end());
    compile(folder, text, options, words, library);
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw RuntimeError(fmt::format("cannot load emulated kernels: {}", dlerror()));
    handle_ = std::shared_ptr<void>(handle, [](void* h) { dlclose(h); });
}

void* HostLibrary::find(const std::string& name) const {
    void* found = dlsym(handle_.get(), name.c_str());
    TW_CHECK(found != nullptr, "emulated kernels have no '{}'", name);
    return found;
}

std::string preprocessed(const std::string& text, const LockstepOptions& options) {
    const TemporaryFolder folder;
    compile(folder, text, options, {"-E", "-P"}, folder.path / "text");
    return contents_of(folder.path / "text");
}

}  // namespace tilewright::cuda
