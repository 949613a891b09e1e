#pragma once
// The three kinds of failure: an error in the user's file, an error of the machine, a bug of the compiler.

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace tilewright {

/// An error in the user's model or data, or an unsupported feature. `what()` is one sentence that names the file, node
/// and operator where known, the expectation and the finding; `hint()` is the remedy (may be empty).
class ModelError : public std::runtime_error {
  public:
    explicit ModelError(const std::string& message, std::string hint = {})
        : std::runtime_error(message), hint_(std::move(hint)) {}
    const std::string& hint() const { return hint_; }

  private:
    std::string hint_;
};

/// An error of the machine: out of memory, a missing driver, a file that cannot be written.
class RuntimeError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// A bug of the compiler. Thrown by TW_CHECK so that a server that embeds the library survives it; the tool reports it
/// and exits with status 1.
class InternalError : public std::logic_error {
  public:
    using std::logic_error::logic_error;
};

template <class... Args>
[[noreturn]] void model_error(fmt::format_string<Args...> format, Args&&... args) {
    throw ModelError(fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void internal_error(const char* file, int line, const char* condition, const std::string& message);

/// TW_CHECK(condition, "format", args...): an invariant of the compiler.
#define TW_CHECK(condition, ...)                                                                                       \
    do {                                                                                                               \
        if (!(condition)) ::tilewright::internal_error(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
    } while (false)

}  // namespace tilewright
