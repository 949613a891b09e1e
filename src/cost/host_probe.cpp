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

/// The value of the first line "key : value".
std::optional<std::string_view> field(std::string_view text, std::string_view key) {
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        const size_t colon = line.find(':');
        if (colon != std::string_view::npos && trim(line.substr(0, colon)) == key) return trim(line.substr(colon + 1));
    }
    return std::nullopt;
}

template <class T>
std::optional<T> number(std::string_view s) {
    s = trim(s);
    T value{};
    const auto result = std::from_chars(s.data(), s.data() + s.size(), value);
    if (result.ec != std::errc() || result.ptr == s.data()) return std::nullopt;
    return value;
}

constexpr double kUsualGhz = 3.5;  // under load, where nothing better is known

// Linux's name -> LLVM's, for the features that change the code one would generate.
constexpr std::pair<std::string_view, std::string_view> kX86Features[] = {
    {"pni", "sse3"},
    {"ssse3", "ssse3"},
    {"sse4_1", "sse4.1"},
    {"sse4_2", "sse4.2"},
    {"popcnt", "popcnt"},
    {"abm", "lzcnt"},
    {"movbe", "movbe"},
    {"bmi1", "bmi"},
    {"bmi2", "bmi2"},
    {"avx", "avx"},
    {"f16c", "f16c"},
    {"fma", "fma"},
    {"avx2", "avx2"},
    {"avx_vnni", "avxvnni"},
    {"avx512f", "avx512f"},
    {"avx512cd", "avx512cd"},
    {"avx512bw", "avx512bw"},
    {"avx512dq", "avx512dq"},
    {"avx512vl", "avx512vl"},
    {"avx512ifma", "avx512ifma"},
    {"avx512vbmi", "avx512vbmi"},
    {"avx512_vbmi2", "avx512vbmi2"},
    {"avx512_vnni", "avx512vnni"},
    {"avx512_bitalg", "avx512bitalg"},
    {"avx512_vpopcntdq", "avx512vpopcntdq"},
    {"avx512_bf16", "avx512bf16"},
    {"avx512_fp16", "avx512fp16"},
    {"amx_tile", "amx-tile"},
    {"amx_int8", "amx-int8"},
    {"amx_bf16", "amx-bf16"},
    {"gfni", "gfni"},
};
constexpr std::pair<std::string_view, std::string_view> kArmFeatures[] = {
    {"asimd", "neon"}, {"fp", "fp-armv8"}, {"asimdhp", "fullfp16"}, {"asimddp", "dotprod"}, {"atomics", "lse"},
    {"sve", "sve"},    {"sve2", "sve2"},   {"i8mm", "i8mm"},        {"bf16", "bf16"},
};

std::vector<std::string> llvm_features(std::string_view flags, bool arm) {
    std::set<std::string> found;
    while (!flags.empty()) {
        const size_t end = std::min(flags.find(' '), flags.size());
        const std::string_view flag = flags.substr(0, end);
        flags.remove_prefix(std::min(end + 1, flags.size()));
        const auto collect = [&](const auto& table) {
            for (const auto& [linux_name, llvm_name] : table) {
                if (flag == linux_name) found.emplace(llvm_name);
            }
        };
        arm ? collect(kArmFeatures) : collect(kX86Features);
    }
    return {found.begin(), found.end()};
}

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
    const auto value = [&](std::string_view key) { return std::string(field(cpuinfo, key).value_or("?")); };
    target.arch = arch;
    if (arm) {
        target.cpu_id = fmt::format("{} {}/{}/{}", value("CPU implementer"), value("CPU architecture"),
                                    value("CPU part"), value("CPU revision"));
    } else {
        target.cpu_id =
            fmt::format("{} {}/{}/{}", value("vendor_id"), value("cpu family"), value("model"), value("stepping"));
    }
    target.cpu = field(cpuinfo, "model name").value_or(target.cpu_id);
    if (const auto flags = field(cpuinfo, arm ? "Features" : "flags")) target.features = llvm_features(*flags, arm);
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
    const bool x86 = field(cpuinfo, "cpu MHz").has_value();
    const double bogomips = x86 ? number<double>(field(cpuinfo, "bogomips").value_or("")).value_or(0) : 0;
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
