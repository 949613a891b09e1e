#pragma once
// Runs the built tool as its users do: a process of its own, in a folder of its own, with limits on time and memory.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "graph/import_models_test.h"

namespace tilewright::tool_test {

struct Result {
    int status = 0;  ///< exit status; 128 + signal where one ended it
    bool timed_out = false;
    double seconds = 0;
    std::string out, err;
};

struct Limits {
    double seconds = 60;  ///< some times more under sanitizers
    /// Of address space; not in force under sanitizers, which need terabytes of it.
    uint64_t bytes = uint64_t{4} << 30;
    /// Once this stands on standard error, `signal` is sent. Empty: never.
    std::string signal_at = {};
    int signal = 0;
    std::vector<std::pair<std::string, std::string>> environment = {};  ///< set in the tool's process
    std::string out = {};      ///< where standard output goes; empty: to Result::out
    uint64_t file_bytes = 0;   ///< RLIMIT_FSIZE; 0: none
    uint64_t stack_bytes = 0;  ///< RLIMIT_STACK, not in force under sanitizers; 0: the caller's
};

/// TILEWRIGHT_LONG_TESTS is set, as `make fuzz` does: tests use sizes that take minutes.
bool long_tests();

/// A temporary folder, and the tool started inside it.
class Workplace {
  public:
    Result run(const std::vector<std::string>& arguments, const Limits& limits = {}) const;
    std::string operator/(const std::string& name) const { return folder / name; }
    std::string read(const std::string& name) const;
    bool exists(const std::string& name) const;
    /// Writes a model's bytes; gives its name.
    std::string write(const std::string& name, const onnx::ModelProto& model) const;

    import_test::TemporaryFolder folder;
};

/// True when the tool failed as it should: exit status 1, in time, with one `error:` line (and perhaps hints and
/// warnings) on standard error and nothing of a bug of its own.
testing::AssertionResult refused(const Result& r);

}  // namespace tilewright::tool_test
