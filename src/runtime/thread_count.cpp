#include "runtime/thread_count.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <string_view>

#include "base/error.h"

namespace tilewright {

namespace {

/// Parses all of `s`, except for surrounding blanks, as a decimal number.
std::optional<int64_t> parse_int(std::string_view s) {
    s = trim(s);
    int64_t v = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
    if (s.empty() || error != std::errc() || end != s.data() + s.size()) return std::nullopt;
    return v;
}

/// "150000 100000" -> 1.5; "max 100000" -> none.
std::optional<double> quota_version2(const std::string& directory, const FileReader& read) {
    const auto text = read(directory + "/cpu.max");
    if (!text) return std::nullopt;
    const auto words = split(trim(*text), ' ');
    const auto quota = parse_int(words[0]);
    const auto period = words.size() > 1 ? parse_int(words[1]) : 100000;
    if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
    return static_cast<double>(*quota) / static_cast<double>(*period);
}

/// A quota of -1 means no limit.
std::optional<double> quota_version1(const std::string& directory, const FileReader& read) {
    const auto quota_text = read(directory + "/cpu.cfs_quota_us");
    const auto period_text = read(directory + "/cpu.cfs_period_us");
    if (!quota_text || !period_text) return std::nullopt;
    const auto quota = parse_int(*quota_text);
    const auto period = parse_int(*period_text);
    if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
    return static_cast<double>(*quota) / static_cast<double>(*period);
}

int checked_count(int64_t n, std::string_view source) {
    if (n < 1 || n > kMaxThreads)
        throw RuntimeError(fmt::format("{} requests {} threads; expected 1 to {}", source, n, kMaxThreads));
    return static_cast<int>(n);
}

std::optional<std::string> environment(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

int usable_cpus(int allowed, std::optional<double> quota) {
    int64_t n = allowed;
    if (quota) n = std::min(n, static_cast<int64_t>(std::ceil(std::min(*quota, static_cast<double>(kMaxThreads)))));
    return static_cast<int>(std::clamp<int64_t>(n, 1, kMaxThreads));
}

}  // namespace

std::optional<double> cgroup_cpu_quota(const FileReader& read) {
    std::optional<double> least;
    for (const bool version2 : {true, false})  // both may be mounted, with the limit in either
        for (const std::string& directory : group_directories(read, "cpu", version2)) {
            const auto quota = version2 ? quota_version2(directory, read) : quota_version1(directory, read);
            if (quota && (!least || *quota < *least)) least = quota;
        }
    return least;
}

std::vector<int> allowed_cpus() {
    // The kernel refuses a mask shorter than its own: try longer ones until it accepts one.
    for (int cpus = 1024; cpus <= 1 << 16; cpus *= 2) {
        const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(CPU_ALLOC(static_cast<size_t>(cpus)),
                                                                    [](cpu_set_t* p) { CPU_FREE(p); });
        if (!mask) break;
        const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
        CPU_ZERO_S(bytes, mask.get());
        if (sched_getaffinity(0, bytes, mask.get()) != 0) {
            if (errno == EINVAL) continue;
            break;
        }
        std::vector<int> found;
        for (int cpu = 0; cpu < cpus; ++cpu)
            if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, mask.get())) found.push_back(cpu);
        if (!found.empty()) return found;
        break;
    }
    return {0};
}

std::vector<int> spread_over_cores(const std::vector<int>& cpus, const FileReader& read) {
    std::map<std::string, int> taken;  // hardware threads of each core so far; a core is identified by its sibling list
    std::map<int, std::vector<int>> rounds;
    for (const int cpu : cpus) {
        const auto siblings = read(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
        rounds[taken[siblings ? std::string(trim(*siblings)) : fmt::format("cpu {}", cpu)]++].push_back(cpu);
    }
    std::vector<int> out;
    for (const auto& [round, members] : rounds) out.insert(out.end(), members.begin(), members.end());
    return out;
}

int thread_count(const ThreadCountSources& sources) {
    if (sources.requested != 0) return checked_count(sources.requested, "the thread option");
    if (sources.tilewright_num_threads && !trim(*sources.tilewright_num_threads).empty()) {
        const auto n = parse_int(*sources.tilewright_num_threads);
        if (!n)
            throw RuntimeError(fmt::format("TILEWRIGHT_NUM_THREADS is '{}'; expected a number from 1 to {}",
                                           *sources.tilewright_num_threads, kMaxThreads));
        if (*n != 0) return checked_count(*n, "TILEWRIGHT_NUM_THREADS");
    }
    if (sources.omp_num_threads) {
        const auto n = parse_int(split(*sources.omp_num_threads, ',')[0]);
        if (n && *n > 0) return static_cast<int>(std::min<int64_t>(*n, kMaxThreads));
    }
    return usable_cpus(sources.allowed_cpus, sources.cpu_quota);
}

int default_thread_count(int requested) {
    return thread_count({requested, environment("TILEWRIGHT_NUM_THREADS"), environment("OMP_NUM_THREADS"),
                         static_cast<int>(allowed_cpus().size()), cgroup_cpu_quota(read_text_file)});
}

int usable_cpu_count() {
    return usable_cpus(static_cast<int>(allowed_cpus().size()), cgroup_cpu_quota(read_text_file));
}

}  // namespace tilewright
