#pragma once
// The three kinds of failure: the user's file, the machine, our own bug.

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace tilewright {

/// The user's model or data is at fault, or uses what is not supported. `what()` is one sentence that names the file,
/// node and operator where known, what was expected and what was found; `hint()` says what to do (may be empty).
class ModelError : public std::runtime_error {
  public:
    explicit ModelError(const std::string& message, std::string hint = {})
        : std::runtime_error(message), hint_(std::move(hint)) {}
    const std::string& hint() const { return hint_; }

  private:
    std::string hint_;
};

/// The machine is at fault: out of memory, a missing driver, a file that cannot be written.
class RuntimeError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// Our own bug. Thrown by TW_CHECK so that a server that embeds the library survives it; the tool reports it and
/// exits 1.
class InternalError : public std::logic_error {
  public:
    using std::logic_error::logic_error;
};

template <class... Args>
[[noreturn]] void model_error(fmt::format_string<Args...> format, Args&&... args) {
    throw ModelError(fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void internal_error(const char* file, int line, const char* condition, const std::string& message);

/// TW_CHECK(condition, "format", args...): a condition that only a bug of ours can break.
#define TW_CHECK(condition, ...)                                                                                       \
    do {                                                                                                               \
        if (!(condition)) ::tilewright::internal_error(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
    } while (false)

}  // namespace tilewright
