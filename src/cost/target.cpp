#include "cost/target.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/hash.h"
#include "cost/host_probe.h"

namespace tilewright {
namespace {

std::vector<CacheLevel> common_caches() {
    CacheLevel l1, l2, l3;
    l1.bytes = 32 << 10;
    l2.level = 2;
    l2.bytes = 512 << 10;
    l3.level = 3;
    l3.bytes = 16 << 20;
    return {l1, l2, l3};
}

std::string size_text(int64_t bytes) {
    if (bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
    return fmt::format("{:.4g} KiB", static_cast<double>(bytes) / 1024);
}

/// "113.2 (0.4 %)" where measured, "112 ?" where assumed.
std::string text(const Measure& m) {
    if (!m.measured()) return fmt::format("{:.4g} ?", m.value);
    return fmt::format("{:.4g} ({:.1f} %)", m.value, 100 * m.spread);
}

}  // namespace

VectorIsa isa_of(const Target& target) {
    VectorIsa best = VectorIsa::baseline;
    for (const VectorIsaRow& row : vector_isa_rows())
        if (row.arch == target.arch &&
            std::all_of(row.required.begin(), row.required.end(), [&](auto name) { return target.has(name); }))
            best = row.isa;
    return best;
}

void set_isa(VectorIsa isa, Target& target) {
    target.isa = isa;
    target.vector_bits = vector_isa_row(isa).vector_bits;
    target.vector_registers = vector_isa_row(isa).vector_registers;
}

bool Target::has(std::string_view feature) const {
    return std::find(features.begin(), features.end(), feature) != features.end();
}

bool Target::may_use(std::string_view feature) const {
    const auto is_it = [&](std::string_view f) { return f == feature; };
    const VectorIsaRow& row = vector_isa_row(isa);
    return native ? has(feature)
                  : std::any_of(extra.begin(), extra.end(), is_it) ||
                        std::any_of(row.required.begin(), row.required.end(), is_it) ||
                        std::any_of(row.implied.begin(), row.implied.end(), is_it);
}

std::vector<std::string> Target::code_features() const {
    if (native) return features;
    std::vector<std::string> all = features_of(isa);
    all.insert(all.end(), extra.begin(), extra.end());
    std::sort(all.begin(), all.end());
    return all;
}

int64_t Target::l2_bytes() const {
    for (const CacheLevel& level : caches)
        if (level.level == 2) return level.usable_bytes();
    return int64_t{1} << 20;
}

int64_t Target::last_cache_bytes() const {
    int64_t bytes = 0;
    for (const CacheLevel& c : caches) bytes = std::max(bytes, c.usable_bytes());
    return bytes;
}

int Target::micro_lanes() const { return gpu ? 4 : lanes(DType::F32); }
int Target::micro_registers() const { return gpu ? 16 : vector_registers; }
int Target::tasks_at_a_time() const { return gpu ? gpu->multiprocessors : workers; }
int64_t Target::task_bytes() const { return gpu ? gpu->block_shared_bytes : l2_bytes(); }
int64_t Target::resident_bytes() const {
    constexpr int64_t kMostOfGpu = int64_t{32} << 20;  // of L2s of 40 MiB and more
    return gpu ? std::min(kMostOfGpu, gpu->l2_bytes / 5 * 4) : last_cache_bytes();
}

Target generic_target(VectorIsa isa) {
    const VectorIsaRow& row = vector_isa_row(isa);
    Target target;
    target.arch = row.arch;
    target.cpu = target.cpu_id = fmt::format("generic {}", target.arch);
    target.features = features_of(isa);
    set_isa(isa, target);
    target.caches = common_caches();
    assume_rates(target);
    return target;
}

Target restricted(Target target, const CodeLevel& level) {
    set_isa(level.isa, target);
    target.native = false;
    target.extra = {level.more.begin(), level.more.end()};
    assume_unit_rates(target);
    return target;
}

Target restricted(Target target, VectorIsa isa) { return restricted(std::move(target), CodeLevel{"", isa, {}}); }

Target with_gpu(Target target, const GpuTarget& gpu) {
    target.gpu = gpu;
    return target;
}

namespace {

/// What the system's files say of these CPUs, but for the number of threads. Read once for each set of CPUs:
/// /proc/cpuinfo and sysfs take a millisecond, which is longer than a small model takes to compile.
Target described(const std::vector<int>& cpus) {
    static std::mutex mutex;
    static std::map<std::vector<int>, Target> known;
    const std::lock_guard lock(mutex);
    const auto [at, added] = known.try_emplace(cpus);
    if (added) {
        Target& target = at->second;
        target.native = true;
        const std::string cpuinfo = read_text_file("/proc/cpuinfo").value_or("");
        describe_cpu(cpuinfo, kHostArch, target);
        target.features = host_features();
        target.cores = count_cores(cpus, read_text_file);
        target.ghz.value = read_ghz(cpus.front(), cpuinfo, read_text_file);
        target.caches = read_caches(cpus.front(), read_text_file);
        if (target.caches.empty()) target.caches = common_caches();
    }
    return at->second;
}

}  // namespace

Target host_target() {
    Target target = described(allowed_cpus());
    target.threads = target.workers = usable_cpu_count();
    target.cores = std::min(target.threads, target.cores);
    assume_rates(target);
    return target;
}

std::string verify(const Target& target) {
    const auto bad = [](const Measure& m) {
        return !std::isfinite(m.value) || m.value <= 0 || !std::isfinite(m.spread) || m.spread < 0 || m.samples < 0;
    };
    const std::pair<const char*, const Measure*> rates[] = {
        {"ghz", &target.ghz},
        {"memory_latency_ns", &target.memory_latency_ns},
        {"memory_gbps_1", &target.memory_gbps_1},
        {"memory_gbps_all", &target.memory_gbps_all},
        {"copy_gbps_1", &target.copy_gbps_1},
        {"copy_gbps_all", &target.copy_gbps_all},
        {"fma_gflops_1", &target.fma_gflops_1},
        {"fma_gflops_all", &target.fma_gflops_all},
        {"dispatch_us", &target.dispatch_us},
    };
    for (const auto& [name, measure] : rates) {
        if (bad(*measure)) return fmt::format("{} is {}, expected a positive number", name, measure->value);
    }
    for (const Measure* unit : {&target.tile_gflops_1, &target.tile_gflops_all, &target.dot_gflops_1,
                                &target.dot_gflops_all, &target.f16_gflops_1, &target.f16_gflops_all})
        if (unit->value != 0 && bad(*unit))
            return fmt::format("the rate of 16-bit products is {}, expected a positive number", unit->value);
    if (target.vector_bits < 128 || target.vector_bits % 128 != 0 || target.vector_registers < 1) {
        return fmt::format("{} registers of {} bits make no vector unit", target.vector_registers, target.vector_bits);
    }
    if (target.cores < 1 || target.threads < target.cores) {
        return fmt::format("{} cores with {} threads", target.cores, target.threads);
    }
    if (target.gpu)
        if (std::string problem = verify(*target.gpu); !problem.empty()) return problem;
    if (target.caches.empty()) return "no caches";
    int64_t below = 0;
    int level = 0;
    for (const CacheLevel& c : target.caches) {
        if (c.level <= level || c.bytes <= below || c.measured_bytes < 0) {
            return fmt::format("cache level {} of {} bytes follows level {} of {} bytes", c.level, c.bytes, level,
                               below);
        }
        if (c.line_bytes < 1 || c.shared_by < 1) {
            return fmt::format("cache level {} has lines of {} bytes and is shared by {} CPUs", c.level, c.line_bytes,
                               c.shared_by);
        }
        if (c.ways < 0 || c.ways > c.bytes / c.line_bytes) {
            return fmt::format("cache level {} has {} ways of {} bytes", c.level, c.ways, c.bytes);
        }
        if (bad(c.load_gbps) || bad(c.latency_ns)) {
            return fmt::format("cache level {} loads {} GB/s after {} ns, expected positive numbers", c.level,
                               c.load_gbps.value, c.latency_ns.value);
        }
        level = c.level;
        below = c.bytes;
    }
    return {};
}

std::string print(const Target& t) {
    std::string out;
    const auto line = [&](std::string_view name, const std::string& value) {
        fmt::format_to(std::back_inserter(out), "{:<9} {}\n", name, value);
    };
    line("cpu", fmt::format("{} ({}), {}", t.cpu, t.cpu_id, t.arch));
    line("vectors", fmt::format("{}: {} registers of {} bits", to_string(t.isa), t.vector_registers, t.vector_bits));
    line("cores", fmt::format("{} with {} hardware thread{} in all, {} GHz", t.cores, t.threads,
                              t.threads == 1 ? "" : "s", text(t.ghz)));
    line("fma f32",
         fmt::format("{} GFLOP/s on 1 thread, {} on {}", text(t.fma_gflops_1), text(t.fma_gflops_all), t.threads));
    if (t.tile_gflops_1.value != 0)
        line("tiles bf16", fmt::format("{} GFLOP/s on 1 thread, {} on {}", text(t.tile_gflops_1),
                                       text(t.tile_gflops_all), t.threads));
    if (t.dot_gflops_1.value != 0)
        line("dots bf16",
             fmt::format("{} GFLOP/s on 1 thread, {} on {}", text(t.dot_gflops_1), text(t.dot_gflops_all), t.threads));
    if (t.f16_gflops_1.value != 0)
        line("fma f16",
             fmt::format("{} GFLOP/s on 1 thread, {} on {}", text(t.f16_gflops_1), text(t.f16_gflops_all), t.threads));
    line("", fmt::format("{:<8}{:>10}{:>10}{:>6}{:>6}{:>9}  {:<18}{}", "", "size", "measured", "line", "ways", "shared",
                         "load GB/s", "latency ns"));
    for (const CacheLevel& c : t.caches) {
        line(
            fmt::format("cache L{}", c.level),
            fmt::format("{:<8}{:>10}{:>10}{:>6}{:>6}{:>9}  {:<18}{}", "", size_text(c.bytes),
                        c.measured_bytes > 0 ? size_text(c.measured_bytes) : "-", c.line_bytes,
                        c.ways > 0 ? std::to_string(c.ways) : "-", c.shared_by, text(c.load_gbps), text(c.latency_ns)));
    }
    line("memory", fmt::format("load {} GB/s on 1 thread, {} on {}; latency {} ns", text(t.memory_gbps_1),
                               text(t.memory_gbps_all), t.threads, text(t.memory_latency_ns)));
    line("", fmt::format("copy {} GB/s on 1 thread, {} on {} (read plus written)", text(t.copy_gbps_1),
                         text(t.copy_gbps_all), t.threads));
    line("dispatch", fmt::format("{} us", text(t.dispatch_us)));
    line("rates", !t.calibrated ? "assumed where marked ?, not measured yet"
                  : t.quick     ? "measured briefly: median (interquartile range); --calibrate measures longer"
                                : "measured: median (interquartile range)");
    return out;
}

std::string target_key(const Target& t) {
    std::string s = fmt::format("{}|{}|{}|{}|{}", t.arch, t.cpu, t.cpu_id, t.cores, t.threads);
    for (const std::string& f : t.features) s += "|" + f;
    for (const CacheLevel& c : t.caches) s += fmt::format("|{},{},{},{}", c.level, c.bytes, c.line_bytes, c.shared_by);
    return fmt::format("{:016x}", hash_text(s));
}

}  // namespace tilewright
