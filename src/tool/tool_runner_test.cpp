#include "tool/tool_runner_test.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <thread>

namespace {
/// The slowdown of the tool under sanitizers, rounded up.
constexpr double kSlower = std::string_view(TW_SANITIZE).empty() ? 1 : 6;
constexpr const char* kAsanOptions = "allocator_may_return_null=1";
}  // namespace

/// Called by AddressSanitizer when the test program itself starts, for the mutants that it forks.
extern "C" const char* __asan_default_options();                          // NOLINT: the sanitizer's name
extern "C" const char* __asan_default_options() { return kAsanOptions; }  // NOLINT

namespace tilewright::tool_test {

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string text_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

[[noreturn]] void become_tool(const std::string& folder, const std::vector<std::string>& arguments, uint64_t bytes,
                              const Limits& limits) {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    if (bytes != 0) {
        const rlimit space{bytes, bytes};
        setrlimit(RLIMIT_AS, &space);
    }
    if (limits.file_bytes != 0) {
        const rlimit file{limits.file_bytes, limits.file_bytes};
        setrlimit(RLIMIT_FSIZE, &file);
    }
    if (limits.stack_bytes != 0 && std::string_view(TW_SANITIZE).empty()) {
        const rlimit stack{limits.stack_bytes, limits.stack_bytes};
        setrlimit(RLIMIT_STACK, &stack);
    }
    setenv("TILEWRIGHT_CALIBRATE", "0", 1);  // caches of tests are empty: each run would measure the machine again
    for (const auto& [name, value] : limits.environment) setenv(name.c_str(), value.c_str(), 1);
    // Sanitizers would end the process for an allocation that is too large; it has to fail as without a sanitizer.
    const char* options = getenv("ASAN_OPTIONS");
    setenv("ASAN_OPTIONS", (std::string(options != nullptr ? options : "") + ":" + kAsanOptions).c_str(), 1);
    std::vector<char*> argv = {const_cast<char*>("tilewright")};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    if (chdir(folder.c_str()) == 0) execv(TW_TOOL, argv.data());
    _exit(126);
}

int exit_status(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

void redirect(const std::string& path, int fd) {
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || dup2(file, fd) < 0) _exit(126);
}

}  // namespace

bool long_tests() { return getenv("TILEWRIGHT_LONG_TESTS") != nullptr; }

Result Workplace::run(const std::vector<std::string>& arguments, const Limits& limits) const {
    const import_test::TemporaryFolder captured;
    const bool limited = std::string(TW_SANITIZE).empty();
    const double start = now();
    const pid_t child = fork();
    if (child == 0) {
        redirect(limits.out.empty() ? captured / "out" : limits.out, STDOUT_FILENO);
        redirect(captured / "err", STDERR_FILENO);
        become_tool(folder.path(), arguments, limited ? limits.bytes : 0, limits);
    }
    Result r;
    int status = 0;
    bool sent = limits.signal_at.empty();
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (now() - start > limits.seconds * kSlower && !r.timed_out) {
            r.timed_out = true;
            kill(child, SIGKILL);
        }
        if (!sent && text_of(captured / "err").find(limits.signal_at) != std::string::npos) {
            sent = true;
            kill(child, limits.signal);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    r.seconds = now() - start;
    r.status = exit_status(status);
    r.out = text_of(captured / "out");
    r.err = text_of(captured / "err");
    return r;
}

std::string Workplace::read(const std::string& name) const { return text_of(folder / name); }
bool Workplace::exists(const std::string& name) const { return std::filesystem::exists(folder / name); }

std::string Workplace::write(const std::string& name, const onnx::ModelProto& model) const {
    folder.write(name, import_test::to_bytes(model));
    return name;
}

testing::AssertionResult refused(const Result& r) {
    const auto failure = [&](const std::string& why) {
        return testing::AssertionFailure()
               << why << ": exit status " << r.status << " after " << r.seconds
               << " s\nstandard error: " << r.err.substr(0, 2000) << "\nstandard output: " << r.out.substr(0, 500);
    };
    if (r.timed_out) return failure("was not done in time");
    if (r.status != 1) return failure("should have failed with exit status 1");
    std::istringstream lines(r.err);
    int errors = 0;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("error: "))
            ++errors;
        else if (!line.starts_with("hint: ") && !line.starts_with("warning: "))
            return failure("standard error has a line that is not an error, hint or warning");
    }
    if (errors != 1) return failure("expected one error line");
    if (r.err.find("bug of Tilewright") != std::string::npos) return failure("reported an internal error");
    return testing::AssertionSuccess();
}

}  // namespace tilewright::tool_test
