#pragma once
// Hardware counters of the calling thread, where the kernel and the machine allow them (perf_event_open).

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

namespace tilewright {

enum class Event : uint8_t { Instructions, L1Loads, L1Misses, L1Stores };

class Counters {
  public:
    Counters() {
        const auto cache = [](uint64_t operation, uint64_t result) {
            return PERF_COUNT_HW_CACHE_L1D | (operation << 8) | (result << 16);
        };
        open(Event::Instructions, PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS);
        open(Event::L1Loads, PERF_TYPE_HW_CACHE, cache(PERF_COUNT_HW_CACHE_OP_READ, PERF_COUNT_HW_CACHE_RESULT_ACCESS));
        open(Event::L1Misses, PERF_TYPE_HW_CACHE, cache(PERF_COUNT_HW_CACHE_OP_READ, PERF_COUNT_HW_CACHE_RESULT_MISS));
        open(Event::L1Stores, PERF_TYPE_HW_CACHE,
             cache(PERF_COUNT_HW_CACHE_OP_WRITE, PERF_COUNT_HW_CACHE_RESULT_ACCESS));
    }
    Counters(const Counters&) = delete;
    Counters& operator=(const Counters&) = delete;
    ~Counters() {
        for (const int fd : files_)
            if (fd >= 0) ::close(fd);
    }

    void start() const {
        for (const int fd : files_) {
            if (fd < 0) continue;
            ioctl(fd, PERF_EVENT_IOC_RESET, 0);
            ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
        }
    }
    void stop() const {
        for (const int fd : files_)
            if (fd >= 0) ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
    }
    /// Of user code between start() and stop(); nothing where there is no such counter, or it did not run all the time.
    std::optional<double> value(Event event) const {
        const int fd = files_[static_cast<size_t>(event)];
        std::array<uint64_t, 3> read = {};  // value, enabled, running
        if (fd < 0 || ::read(fd, read.data(), sizeof read) != static_cast<ssize_t>(sizeof read)) return std::nullopt;
        if (read[2] == 0 || read[2] < read[1]) return std::nullopt;
        return static_cast<double>(read[0]);
    }
    /// Why a counter is missing; empty: none is.
    const std::string& missing() const { return missing_; }

  private:
    void open(Event event, uint32_t type, uint64_t config) {
        perf_event_attr attr;
        std::memset(&attr, 0, sizeof attr);
        attr.size = sizeof attr;
        attr.type = type;
        attr.config = config;
        attr.disabled = 1;
        attr.exclude_kernel = 1;
        attr.exclude_hv = 1;
        attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
        const auto fd = static_cast<int>(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0));
        files_[static_cast<size_t>(event)] = fd;
        if (fd < 0) missing_ = std::strerror(errno);
    }

    std::array<int, 4> files_ = {-1, -1, -1, -1};
    std::string missing_;
};

}  // namespace tilewright
