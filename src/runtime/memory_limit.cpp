#include "runtime/memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace tilewright {

namespace {

/// Smaller amounts are granted without a system call.
constexpr uint64_t kSmall = uint64_t{64} << 20;

uint64_t sum(uint64_t a, uint64_t b) {
    uint64_t s = 0;
    return __builtin_add_overflow(a, b, &s) ? UINT64_MAX : s;
}

/// The minimum of the machine's memory, RLIMIT_AS, and the control groups' limit.
uint64_t least_memory(std::optional<uint64_t> group) {
    uint64_t least = UINT64_MAX;
    const int64_t pages = sysconf(_SC_PHYS_PAGES), page_size = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page_size > 0) least = static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_size);
    if (group) least = std::min(least, *group);
    struct rlimit space {};
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
        least = std::min<uint64_t>(least, space.rlim_cur);
    return least;
}

[[noreturn]] void not_enough(const std::string& what, uint64_t bytes, uint64_t have) {
    throw RuntimeError(fmt::format("not enough memory: {} needs {}{} bytes, and this process may use {}", what,
                                   bytes == UINT64_MAX ? "more than " : "", bytes, have));
}

}  // namespace

std::optional<uint64_t> cgroup_memory_limit(const FileReader& read) {
    std::optional<uint64_t> least;
    for (const bool version2 : {true, false})
        for (const std::string& directory : group_directories(read, "memory", version2)) {
            const auto text = read(directory + (version2 ? "/memory.max" : "/memory.limit_in_bytes"));
            uint64_t limit = 0;  // "max" is not a number: no limit
            if (text && std::from_chars(text->data(), text->data() + text->size(), limit).ec == std::errc())
                least = std::min(least.value_or(limit), limit);
        }
    return least;
}

uint64_t usable_memory(const FileReader& read) { return least_memory(cgroup_memory_limit(read)); }

uint64_t available_memory(const FileReader& read) {
    const std::optional<std::string> text = read("/proc/meminfo");
    const std::string key = "MemAvailable:";
    if (!text) return UINT64_MAX;
    const size_t line = text->find(key);
    if (line == std::string::npos) return UINT64_MAX;
    const size_t digits = text->find_first_not_of(' ', line + key.size());
    uint64_t kilobytes = 0;
    if (digits == std::string::npos ||
        std::from_chars(text->data() + digits, text->data() + text->size(), kilobytes).ec != std::errc())
        return UINT64_MAX;
    return kilobytes * 1024;
}

uint64_t usable_memory() {
    static const std::optional<uint64_t> group = cgroup_memory_limit(read_text_file);  // reads a dozen files
    return least_memory(group);
}

void require_memory(uint64_t bytes, const std::string& what) {
    const uint64_t have = usable_memory();
    if (bytes > have) not_enough(what, bytes, have);
}

bool MemoryBudget::fits(uint64_t more) const {
    const std::lock_guard lock(mutex_);
    return sum(used_, more) <= limit_ && (more < kSmall || more <= available_memory());
}

void MemoryBudget::resize(uint64_t old_bytes, uint64_t new_bytes, bool copied, const std::string& what) {
    const std::lock_guard lock(mutex_);
    TW_CHECK(old_bytes <= used_, "{} of {} bytes", old_bytes, used_);
    const uint64_t kept = copied ? used_ : used_ - old_bytes, peak = sum(kept, new_bytes);
    if (new_bytes > old_bytes) {
        const uint64_t have = new_bytes < kSmall ? limit_ : std::min(limit_, sum(used_, available_memory()));
        if (peak > have) not_enough(what, peak, have);
    }
    used_ = used_ - old_bytes + new_bytes;
}

}  // namespace tilewright
