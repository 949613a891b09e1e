#include "driver/bisect/onnxruntime.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "driver/files.h"
#include "driver/npy.h"
#include "driver/npz.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): unistd.h has it for GNU sources alone

namespace tilewright::bisect {

namespace {

using Json = nlohmann::json;

class Folder {
  public:
    Folder() : path_((std::filesystem::temp_directory_path() / "tilewright-bisect-XXXXXX").string()) {
        if (mkdtemp(path_.data()) == nullptr)
            throw RuntimeError(fmt::format("cannot make a folder in {}: {}",
                                           std::filesystem::temp_directory_path().string(), std::strerror(errno)));
    }
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    const std::string& path() const { return path_; }
    std::string operator/(const char* name) const { return path_ + "/" + name; }

  private:
    std::string path_;
};

/// The exit status; standard error goes to `log`. Throws RuntimeError if the program cannot be started.
int run(const std::vector<std::string>& command, const std::string& log) {
    std::vector<char*> arguments;
    arguments.reserve(command.size() + 1);
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    pid_t child = 0;
    const int error = posix_spawnp(&child, arguments[0], &files, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0) throw RuntimeError(fmt::format("cannot run '{}': {}", command[0], std::strerror(error)));
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            throw RuntimeError(fmt::format("cannot wait for '{}': {}", command[0], std::strerror(errno)));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// The last line that is not empty: Python prints the reason of an exception there.
std::string last_line(const std::string& text) {
    std::string line;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        if (end > at) line = text.substr(at, end - at);
        at = end + 1;
    }
    return line.substr(0, 500);
}

}  // namespace

std::vector<NamedTensor> onnxruntime_tensors(const std::string& python, const std::string& model,
                                             const std::vector<NamedTensor>& inputs) {
    const Folder folder;
    const std::string script = folder / "onnxruntime_tensors.py", log = folder / "log.txt";
    write_file(script, {kOnnxruntimeScript});
    std::vector<NamedTensor> arrays;
    Json names = Json::array();
    for (const NamedTensor& t : inputs) {
        if (!has_numpy_type(t.value.dtype()))
            throw RuntimeError(fmt::format("input {} cannot be passed to ONNX Runtime: NumPy has no type {}",
                                           quoted_name(t.name), to_string(t.value.dtype())));
        arrays.push_back({std::to_string(arrays.size()), t.value});
        names.push_back(t.name);
    }
    save_npz(folder / "inputs.npz", arrays);
    write_file(folder / "inputs.json", {names.dump(-1, ' ', true, Json::error_handler_t::replace)});
    if (run({python, script, model, folder.path()}, log) != 0)
        throw RuntimeError(fmt::format("{} cannot run ONNX Runtime (--python gives another one): {}", python,
                                       last_line(read_file(log))));
    names = Json::parse(read_file(folder / "outputs.json"));
    std::vector<NamedTensor> tensors;
    for (NamedTensor& t : load_npz(folder / "outputs.npz"))
        tensors.push_back({names.at(static_cast<size_t>(std::stoul(t.name))).get<std::string>(), std::move(t.value)});
    return tensors;
}

}  // namespace tilewright::bisect
