#pragma once
// How much memory this process may use, and an account of what it uses.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/control_group.h"

namespace tilewright {

/// The least limit of the process's control group and of all above it, `memory.max` (version 2) and
/// `memory.limit_in_bytes` (version 1); nullopt without one.
std::optional<uint64_t> cgroup_memory_limit(const FileReader& read);

/// Bytes this process may use: the least of the machine's memory, its control groups' limits, and RLIMIT_AS.
/// The groups' limits are read once.
uint64_t usable_memory();
uint64_t usable_memory(const FileReader& read);

/// Bytes that can be had now without taking them from other processes: MemAvailable of /proc/meminfo; UINT64_MAX where
/// that cannot be read.
uint64_t available_memory(const FileReader& read = read_text_file);

/// Throws RuntimeError "not enough memory: `what` needs N bytes, and this process may use M".
void require_memory(uint64_t bytes, const std::string& what);

/// What one session's buffers take, against a limit. Thread-safe: parts of a model may run side by side.
class MemoryBudget {
  public:
    explicit MemoryBudget(uint64_t limit) : limit_(limit) {}
    uint64_t limit() const { return limit_; }
    uint64_t used() const {
        const std::lock_guard lock(mutex_);
        return used_;
    }

    /// A buffer of `old_bytes` becomes one of `new_bytes`; `copied`: both exist for a moment. Throws RuntimeError as
    /// require_memory does where that does not fit, and then counts nothing.
    void resize(uint64_t old_bytes, uint64_t new_bytes, bool copied, const std::string& what);

    /// Makes `storage` hold `bytes`, its contents kept. Where it held something before and there is room, half as much
    /// again: a buffer that grows step by step is rarely copied. `what()` names it in the error.
    template <class What>
    void grow(std::vector<std::byte>& storage, uint64_t bytes, const What& what) {
        if (storage.size() >= bytes) return;
        const uint64_t ample = storage.empty() ? bytes : bytes + bytes / 2, size = fits(ample) ? ample : bytes;
        resize(storage.size(), size, true, what());
        storage.resize(size);
    }

  private:
    /// Whether so many more bytes do.
    bool fits(uint64_t more) const;

    const uint64_t limit_;
    mutable std::mutex mutex_;
    uint64_t used_ = 0;
};

}  // namespace tilewright
