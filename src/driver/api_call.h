#pragma once
// What all functions of the C interface share: errors, and options of more than one version.

#include <atomic>
#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>

#include "base/cancelled.h"
#include "base/error.h"
#include "base/option_error.h"
#include "tilewright/tilewright.h"

namespace tilewright::api {

/// An error of the caller.
class InvalidArgument : public std::invalid_argument {
  public:
    using std::invalid_argument::invalid_argument;
};

class Busy : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

template <class... Args>
[[noreturn]] void invalid(fmt::format_string<Args...> format, Args&&... args) {
    throw InvalidArgument(fmt::format(format, std::forward<Args>(args)...));
}

inline void require_pointer(const void* p, const char* name) {
    if (p == nullptr) invalid("'{}' is NULL", name);
}

/// The use of an object by one call. Throws Busy, with the message, while another call uses it.
class Use {
  public:
    Use(std::atomic<bool>& used, const char* message) : used_(used) {
        if (used_.exchange(true, std::memory_order_acquire)) throw Busy(message);
    }
    ~Use() { used_.store(false, std::memory_order_release); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

  private:
    std::atomic<bool>& used_;
};

/// Creates the error object unless `error` is null, and returns `status`.
tilewright_status report(tilewright_error** error, tilewright_status status, const char* message,
                         const std::string& hint = {}) noexcept;

/// Runs `body` and converts every exception to a status.
template <class F>
tilewright_status guarded(tilewright_error** error, F&& body) noexcept {
    if (error != nullptr) *error = nullptr;
    try {
        body();
        return TILEWRIGHT_OK;
    } catch (const InvalidArgument& e) {
        return report(error, TILEWRIGHT_INVALID_ARGUMENT, e.what());
    } catch (const Busy& e) {
        return report(error, TILEWRIGHT_BUSY, e.what());
    } catch (const Cancelled& e) {
        return report(error, TILEWRIGHT_CANCELLED, e.what());
    } catch (const OptionError& e) {
        return report(error, TILEWRIGHT_INVALID_ARGUMENT, e.what(), e.hint());
    } catch (const ModelError& e) {
        return report(error, TILEWRIGHT_INVALID_MODEL, e.what(), e.hint());
    } catch (const RuntimeError& e) {
        return report(error, TILEWRIGHT_RUNTIME_ERROR, e.what());
    } catch (const std::bad_alloc&) {
        return report(error, TILEWRIGHT_RUNTIME_ERROR, "not enough memory");
    } catch (const std::exception& e) {
        return report(error, TILEWRIGHT_INTERNAL_ERROR, e.what(), "this is a bug of Tilewright; please report it");
    } catch (...) {
        return report(error, TILEWRIGHT_INTERNAL_ERROR, "an exception of unknown type");
    }
}

/// The first `size` bytes that a caller's struct and this version's both have, into `known`, which holds the defaults.
/// Throws InvalidArgument if the size is not that of any version, or a field that is set is not known.
void copy_known_fields(const void* given, size_t size, size_t first, void* known, size_t known_size, const char* name);

}  // namespace tilewright::api
