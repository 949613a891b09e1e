#include "cost/host_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <utility>

namespace tilewright {
namespace {

template <class T>
std::optional<T> number(std::string_view s) {
    s = trim(s);
    T value{};
    const auto result = std::from_chars(s.data(), s.data() + s.size(), value);
    if (result.ec != std::errc() || result.ptr == s.data()) return std::nullopt;
    return value;
}

constexpr double kUsualGhz = 3.5;  // under load, where nothing better is known

/// "32K" -> 32768.
std::optional<int64_t> cache_bytes(std::string_view text) {
    text = trim(text);
    const auto value = number<int64_t>(text);
    if (!value || *value <= 0 || *value > (int64_t{1} << 31)) return std::nullopt;
    switch (text.back()) {
        case 'K':
            return *value << 10;
        case 'M':
            return *value << 20;
        case 'G':
            return *value << 30;
        default:
            return value;
    }
}

std::string cpu_folder(int cpu) { return fmt::format("/sys/devices/system/cpu/cpu{}/", cpu); }

}  // namespace

void describe_cpu(std::string_view cpuinfo, std::string_view arch, Target& target) {
    const bool arm = arch == "aarch64";
    const auto value = [&](std::string_view key) { return std::string(cpuinfo_field(cpuinfo, key).value_or("?")); };
    target.arch = arch;
    if (arm) {
        target.cpu_id = fmt::format("{} {}/{}/{}", value("CPU implementer"), value("CPU architecture"),
                                    value("CPU part"), value("CPU revision"));
    } else {
        target.cpu_id =
            fmt::format("{} {}/{}/{}", value("vendor_id"), value("cpu family"), value("model"), value("stepping"));
    }
    target.cpu = cpuinfo_field(cpuinfo, "model name").value_or(target.cpu_id);
    if (auto features = features_in(cpuinfo, arch); !features.empty()) target.features = std::move(features);
    set_isa(isa_of(target), target);
}

std::vector<CacheLevel> read_caches(int cpu, const FileReader& read) {
    std::vector<CacheLevel> caches;
    for (int index = 0; index < 16; ++index) {
        const std::string folder = fmt::format("{}cache/index{}/", cpu_folder(cpu), index);
        const auto type = read(folder + "type");
        if (!type) break;
        if (trim(*type) == "Instruction") continue;
        const auto level = number<int>(read(folder + "level").value_or(""));
        const auto bytes = cache_bytes(read(folder + "size").value_or(""));
        if (!level || !bytes) continue;
        CacheLevel cache;
        cache.level = *level;
        cache.bytes = *bytes;
        cache.line_bytes = number<int>(read(folder + "coherency_line_size").value_or("")).value_or(64);
        cache.shared_by = std::max(1, count_cpu_list(read(folder + "shared_cpu_list").value_or("")));
        cache.ways = number<int>(read(folder + "ways_of_associativity").value_or("")).value_or(0);
        caches.push_back(cache);
    }
    std::sort(caches.begin(), caches.end(), [](const auto& a, const auto& b) { return a.level < b.level; });
    return caches;
}

double read_ghz(int cpu, std::string_view cpuinfo, const FileReader& read) {
    if (const auto khz = number<double>(read(cpu_folder(cpu) + "cpufreq/cpuinfo_max_freq").value_or(""))) {
        return *khz / 1e6;
    }
    // The nominal clock, on x86 that of the time stamp counter, at half of "bogomips"; the highest is more. "cpu MHz"
    // may be the present clock: it differs between readings, and so would every estimate between compilations.
    const bool x86 = cpuinfo_field(cpuinfo, "cpu MHz").has_value();
    const double bogomips = x86 ? number<double>(cpuinfo_field(cpuinfo, "bogomips").value_or("")).value_or(0) : 0;
    return std::max(bogomips / 2e3, kUsualGhz);
}

int count_cores(const std::vector<int>& cpus, const FileReader& read) {
    std::set<std::string> cores;
    for (int cpu : cpus) {
        const std::string self = fmt::format("cpu {}", cpu);
        cores.insert(read(cpu_folder(cpu) + "topology/thread_siblings_list").value_or(self));
    }
    return std::max(1, static_cast<int>(cores.size()));
}

int count_cpu_list(std::string_view list) {
    int count = 0;
    list = trim(list);
    while (!list.empty()) {
        const size_t end = std::min(list.find(','), list.size());
        const std::string_view part = list.substr(0, end);
        list.remove_prefix(std::min(end + 1, list.size()));
        const size_t dash = part.find('-');
        const auto first = number<int>(part.substr(0, dash));
        const auto last = dash == std::string_view::npos ? first : number<int>(part.substr(dash + 1));
        if (!first || !last || *first < 0 || *last < *first || *last > 1 << 20) return 0;
        count += *last - *first + 1;
    }
    return count;
}

void assume_unit_rates(Target& target) {
    const auto assume = [](Measure& measure, double value) {
        if (measure.value == 0) measure.value = value;
    };
    // A product of 16 x 16 x 32 takes 16 cycles.
    if (target.bf16_tiles()) {
        assume(target.tile_gflops_1, 1024 * target.ghz.value);
        assume(target.tile_gflops_all, target.tile_gflops_1.value * target.cores);
    }
    // As many dot products a cycle as multiply-adds, each of two.
    if (target.bf16_dot_instructions()) {
        assume(target.dot_gflops_1, 2 * target.fma_gflops_1.value);
        assume(target.dot_gflops_all, 2 * target.fma_gflops_all.value);
    }
    // As many multiply-adds a cycle, of twice the lanes.
    if (target.may_use("avx512fp16")) {
        assume(target.f16_gflops_1, 2 * target.fma_gflops_1.value);
        assume(target.f16_gflops_all, 2 * target.fma_gflops_all.value);
    }
}

void assume_rates(Target& target) {
    const auto assume = [](Measure& measure, double value) {
        if (!measure.measured()) measure.value = value;
    };
    if (target.ghz.value <= 0) target.ghz.value = kUsualGhz;
    const double ghz = target.ghz.value;
    const double vector_bytes = target.vector_bits / 8.0;

    // Two fused multiply-adds a cycle; without them one multiplication and one addition.
    const double flops = target.isa == VectorIsa::baseline ? 2 : 4;
    assume(target.fma_gflops_1, flops * target.lanes(DType::F32) * ghz);
    assume(target.fma_gflops_all, target.fma_gflops_1.value * target.cores);

    assume_unit_rates(target);

    // Loads: two vectors a cycle from level 1, one line a cycle from level 2, half a line from what lies beyond.
    constexpr std::array<double, 3> kLatencyCycles = {4, 13, 40};
    for (size_t i = 0; i < target.caches.size(); ++i) {
        CacheLevel& cache = target.caches[i];
        const double bytes_a_cycle = i == 0   ? 2 * vector_bytes
                                     : i == 1 ? std::min(2 * vector_bytes, 64.0)
                                              : std::min(2 * vector_bytes, 32.0);
        assume(cache.load_gbps, bytes_a_cycle * ghz);
        assume(cache.latency_ns, kLatencyCycles[std::min(i, kLatencyCycles.size() - 1)] / ghz);
    }
    assume(target.memory_latency_ns, 80);
    assume(target.memory_gbps_1, 30);
    assume(target.memory_gbps_all, std::min(30.0 * target.cores, 400.0));
    assume(target.copy_gbps_1, target.memory_gbps_1.value);
    assume(target.copy_gbps_all, target.memory_gbps_all.value);
    assume(target.dispatch_us, target.threads > 1 ? 1.0 : 0.05);
}

}  // namespace tilewright
