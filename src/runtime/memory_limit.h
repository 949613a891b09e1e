#pragma once
// The memory limit of this process, and an account of its use.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/control_group.h"

namespace tilewright {

/// The smallest limit of the process's control group and its ancestors, `memory.max` (version 2) and
/// `memory.limit_in_bytes` (version 1); nullopt without a limit.
std::optional<uint64_t> cgroup_memory_limit(const FileReader& read);

/// Bytes this process may use: the minimum of the machine's memory, its control groups' limits, and RLIMIT_AS. The
/// groups' limits are read once.
uint64_t usable_memory();
uint64_t usable_memory(const FileReader& read);

/// Bytes that are available without displacing other processes: MemAvailable of /proc/meminfo; UINT64_MAX if it cannot
/// be read.
uint64_t available_memory(const FileReader& read = read_text_file);

/// Throws RuntimeError "not enough memory: `what` needs N bytes, and this process may use M".
void require_memory(uint64_t bytes, const std::string& what);

/// The bytes of one session's buffers, and their limit. Thread-safe: parts of a model may run concurrently.
class MemoryBudget {
  public:
    explicit MemoryBudget(uint64_t limit) : limit_(limit) {}
    uint64_t limit() const { return limit_; }
    uint64_t used() const {
        const std::lock_guard lock(mutex_);
        return used_;
    }

    /// Accounts for a buffer that changes from `old_bytes` to `new_bytes`; `copied`: both exist during the copy. Throws
    /// RuntimeError as require_memory does if that exceeds the limit, and then accounts for nothing.
    void resize(uint64_t old_bytes, uint64_t new_bytes, bool copied, const std::string& what);

    /// Resizes `storage` to `bytes` and keeps its contents. If it was not empty and the limit allows it, the capacity
    /// grows by half, so that a buffer that grows step by step is rarely copied. `what()` names it in the error.
    template <class What>
    void grow(std::vector<std::byte>& storage, uint64_t bytes, const What& what) {
        if (storage.size() >= bytes) return;
        const uint64_t ample = storage.empty() ? bytes : bytes + bytes / 2, size = fits(ample) ? ample : bytes;
        resize(storage.size(), size, true, what());
        storage.resize(size);
    }

  private:
    /// True if `more` bytes are within the limit.
    bool fits(uint64_t more) const;

    const uint64_t limit_;
    mutable std::mutex mutex_;
    uint64_t used_ = 0;
};

}  // namespace tilewright
