#pragma once
// Runs the built tool as users do: in its own process and folder, with limits on time and memory.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "graph/import_models_test.h"

namespace tilewright::tool_test {

struct Result {
    int status = 0;  ///< exit status; 128 + signal if a signal ended it
    bool timed_out = false;
    double seconds = 0;
    std::string out, err;
};

struct Limits {
    double seconds = 60;  ///< multiplied under sanitizers
    /// Limit of the address space; not in force under sanitizers, which reserve terabytes.
    uint64_t bytes = uint64_t{4} << 30;
    /// When this text appears on standard error, `signal` is sent. Empty: never.
    std::string signal_at = {};
    int signal = 0;
    std::vector<std::pair<std::string, std::string>> environment = {};  ///< set in the tool's process
    std::string out = {};      ///< a file for standard output; empty: Result::out
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
    /// Writes a model's bytes and returns its name.
    std::string write(const std::string& name, const onnx::ModelProto& model) const;

    import_test::TemporaryFolder folder;
};

/// True for a proper failure: exit status 1, in time, with one `error:` line (and perhaps hints and warnings) on
/// standard error and no sign of an internal error.
testing::AssertionResult refused(const Result& r);

}  // namespace tilewright::tool_test
