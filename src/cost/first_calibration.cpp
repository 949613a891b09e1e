#include "cost/first_calibration.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/private_folder.h"

namespace tilewright {
namespace {

constexpr double kMostWaitSeconds = 10;

/// An exclusive lock on a file of its own beside `path`, released with the object and by the end of the process. None
/// where the file cannot be made, or where another process has the lock for longer than kMostWaitSeconds: two processes
/// then measure, and the later result replaces the earlier one.
Descriptor lock_beside(const std::string& path) {
    make_private_folders(std::filesystem::path(path).parent_path().string());
    Descriptor file(open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    const double start = now_seconds();
    while (file && flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
        if (now_seconds() - start > kMostWaitSeconds) return Descriptor();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return file;
}

std::string summary(const Target& t, double seconds) {
    const CacheLevel& last = t.caches.back();
    return fmt::format(
        "measured this machine's rates in {:.1f} s: {:.1f} GFLOP/s and {:.1f} GB/s of memory on 1 thread, {:.1f} and "
        "{:.1f} on {}, {} MiB of {} MiB of L{} usable",
        seconds, t.fma_gflops_1.value, t.memory_gbps_1.value, t.fma_gflops_all.value, t.memory_gbps_all.value,
        t.threads, last.usable_bytes() >> 20, last.bytes >> 20, last.level);
}

/// Measures; keeps the result where that is possible.
Target measure_and_keep(const std::function<Target()>& measure, const LineSink& note, const LineSink& warn) {
    const double start = now_seconds();
    std::optional<Target> target;
    try {
        target = measure();
    } catch (const RuntimeError& e) {
        if (warn) warn(fmt::format("rates of this machine are assumed, not measured: {}", e.what()));
        return host_target();
    }
    const double seconds = now_seconds() - start;
    std::string kept;
    try {
        kept = "kept in " + save_target(*target);
    } catch (const RuntimeError& e) {
        if (warn) warn(fmt::format("the measured rates of this machine are not stored: {}", e.what()));
        kept = "not kept";
    }
    if (note)
        note(fmt::format("{}; {} (`tilewright info --calibrate` measures longer)", summary(*target, seconds), kept));
    return std::move(*target);
}

}  // namespace

bool first_calibration_enabled() {
    const char* value = std::getenv("TILEWRIGHT_CALIBRATE");
    return value == nullptr || std::string_view(value) != "0";
}

Target calibrated_target(const std::function<Target()>& measure, const LineSink& note, const LineSink& warn) {
    // Measured in this process, by folder and machine: without a usable folder a second compilation must not measure
    // again.
    static std::mutex mutex;
    static std::map<std::string, Target> measured;
    const std::lock_guard guard(mutex);
    if (auto target = load_target()) return std::move(*target);
    const std::string key = cache_folder().value_or("") + "|" + target_key(host_target());
    if (const auto found = measured.find(key); found != measured.end()) return found->second;
    Descriptor lock;
    try {
        lock = lock_beside(target_path(host_target()));
    } catch (const RuntimeError&) {
        // Without a folder there is nothing to wait for; save_target reports the reason.
    }
    if (auto target = load_target()) return std::move(*target);  // another process had the lock and measured
    return measured.emplace(key, measure_and_keep(measure, note, warn)).first->second;
}

Target calibrated_target(const LineSink& note, const LineSink& warn) {
    if (!first_calibration_enabled()) return current_target();
    return calibrated_target([] { return calibrate(CalibrationLength::quick); }, note, warn);
}

}  // namespace tilewright
