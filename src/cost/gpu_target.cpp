#include "cost/gpu_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace tilewright {

GpuTarget a100() {
    GpuTarget t;
    t.name = "a100";
    t.major = 8;
    t.minor = 0;
    t.multiprocessors = 108;
    t.block_shared_bytes = 163 << 10;
    t.sm_shared_bytes = 164 << 10;
    t.l2_bytes = int64_t{40} << 20;
    t.memory_bytes = int64_t{80} << 30;
    t.ghz = 1.41;
    t.memory_gbps = 2039;
    t.f32_gflops = 19500;
    t.f64_gflops = 9700;
    t.tf32_gflops = 156000;
    t.f16_gflops = 312000;
    assume_rates(t);
    t.rates.launch_us = 2.5;
    return t;
}

GpuTarget h200() {
    GpuTarget t;
    t.name = "h200";
    t.major = 9;
    t.minor = 0;
    t.multiprocessors = 132;
    t.block_shared_bytes = 227 << 10;
    t.sm_shared_bytes = 228 << 10;
    t.l2_bytes = int64_t{50} << 20;
    t.memory_bytes = int64_t{141} * 1000 * 1000 * 1000;
    t.ghz = 1.98;
    t.memory_gbps = 4800;
    t.f32_gflops = 67000;
    t.f64_gflops = 34000;
    t.tf32_gflops = 494500;
    t.f16_gflops = 989500;
    t.f8_gflops = 1979000;
    assume_rates(t);
    return t;
}

std::optional<GpuTarget> gpu_target(std::string_view name) {
    for (GpuTarget& t : std::vector<GpuTarget>{a100(), h200()})
        if (t.name == name) return std::move(t);
    return std::nullopt;
}

std::vector<std::string> gpu_target_names() { return {a100().name, h200().name}; }

std::span<const GpuRateField> gpu_rate_fields() {
    static constexpr GpuRateField kFields[] = {
        {"launch_us", "us", &GpuRates::launch_us, "an H100's"},
        {"memory_gbps", "GB/s", &GpuRates::memory_gbps, "the data sheet's"},
        {"cache_bytes", "bytes/clock/SM", &GpuRates::cache_bytes, "an H100's"},
        {"shared_bytes", "bytes/clock/SM", &GpuRates::shared_bytes, "an H100's"},
        {"shared_clocks", "clocks", &GpuRates::shared_clocks, "an H100's"},
        {"copy_us", "us", &GpuRates::copy_us, "an H100's"},
        {"drain_us", "us", &GpuRates::drain_us, "an H100's"},
        {"f32_gflops", "GFLOP/s", &GpuRates::f32_gflops, "an H100's share of the data sheet's"},
        {"warp_f16_gflops", "GFLOP/s", &GpuRates::warp_f16_gflops, "an H100's share of the data sheet's"},
        {"warp_tf32_gflops", "GFLOP/s", &GpuRates::warp_tf32_gflops, "an H100's share of the data sheet's"},
        {"group_f16_gflops", "GFLOP/s", &GpuRates::group_f16_gflops, "an H100's share of the data sheet's"},
        {"group_tf32_gflops", "GFLOP/s", &GpuRates::group_tf32_gflops, "an H100's share of the data sheet's"},
    };
    return kFields;
}

std::string architecture_name(int capability) {
    GpuTarget t;
    t.major = capability / 10;
    t.minor = capability % 10;
    return fmt::format("sm_{}{}", capability, t.has_wgmma() ? "a" : "");
}

void assume_peaks(GpuTarget& t) {
    // Operations a clock and SM: of the ordinary cores, and of the matrix units in f16 with sums in f32. Graphics cards
    // have a quarter of the oldest data centre GPU's matrix units, and few cores for f64.
    const bool data_centre = t.capability() == 80 || t.major == 9 || t.major == 10;
    const double f32 = t.major == 8 && data_centre ? 128 : 256;
    const double f16 = !data_centre ? 512 : t.major == 8 ? 2048 : t.major == 9 ? 4096 : 8192;
    const double clocks = t.multiprocessors * t.ghz;
    t.f32_gflops = f32 * clocks;
    t.f64_gflops = t.f32_gflops / (data_centre ? 2 : 64);
    t.f16_gflops = f16 * clocks;
    t.tf32_gflops = t.f16_gflops / 2;
}

void assume_rates(GpuTarget& t) {
    // Measured on an H100 by bench_probe (docs/gpu.md): the shares that it reaches of its data sheet's rates. Where
    // other instructions than those of a warp reach the full rate, a warp's reach less.
    constexpr double kReached = 0.85, kOfOneWarp = 0.6;
    const double of_warp = t.major == 9 || t.major == 10 ? kOfOneWarp : kReached,
                 of_group = t.has_wgmma() ? kReached : 0;
    t.rates = {.launch_us = 0.9,
               .memory_gbps = t.memory_gbps,
               .cache_bytes = 31,
               .shared_bytes = 125,
               .shared_clocks = 29,
               .copy_us = 0.4,  // from memory; from the L2 it takes 0.2
               .drain_us = 0.03,
               .f32_gflops = kReached * t.f32_gflops,
               .warp_f16_gflops = of_warp * t.f16_gflops,
               .warp_tf32_gflops = of_warp * t.tf32_gflops,
               .group_f16_gflops = of_group * t.f16_gflops,
               .group_tf32_gflops = of_group * t.tf32_gflops};
    t.measured = false;
}

namespace {

/// Measured rates that are farther from what is assumed than any GPU's are of another measurement.
std::string verify_rates(const GpuTarget& t) {
    constexpr double kFactor = 10;
    GpuTarget assumed = t;
    assume_rates(assumed);
    for (const GpuRateField& f : gpu_rate_fields()) {
        const double value = t.rates.*f.member, expected = assumed.rates.*f.member;
        if (!std::isfinite(value) || value < expected / kFactor || value > expected * kFactor)
            return fmt::format("{} is {:.4g} {}, expected {:.4g} to {:.4g}", f.name, value, f.unit, expected / kFactor,
                               expected * kFactor);
    }
    return {};
}

}  // namespace

std::string verify(const GpuTarget& t) {
    if (t.major < 8) return fmt::format("compute capability {}.{}: 8.0 is the oldest", t.major, t.minor);
    if (t.multiprocessors < 1 || t.warp != 32) return "no multiprocessors, or a warp size other than 32";
    if (t.block_threads < t.warp || t.block_threads % t.warp != 0 || t.sm_threads < t.block_threads || t.sm_blocks < 1)
        return fmt::format("blocks of {} threads on multiprocessors of {}", t.block_threads, t.sm_threads);
    if (t.block_shared_bytes < 1 || t.sm_shared_bytes < t.block_shared_bytes)
        return fmt::format("blocks with {} bytes of shared memory on multiprocessors with {}", t.block_shared_bytes,
                           t.sm_shared_bytes);
    if (t.thread_registers < 1 || t.sm_registers < t.thread_registers)
        return fmt::format("threads with {} registers on multiprocessors with {}", t.thread_registers, t.sm_registers);
    if (t.l2_bytes < 1 || t.memory_bytes < t.l2_bytes) return "a second-level cache larger than the memory";
    for (const double rate : {t.ghz, t.memory_gbps, t.f32_gflops})
        if (!std::isfinite(rate) || rate <= 0) return "a rate is not a positive number";
    for (const double rate : {t.f64_gflops, t.tf32_gflops, t.f16_gflops, t.f8_gflops})
        if (!std::isfinite(rate) || rate < 0) return "a rate is negative or not a number";
    return verify_rates(t);
}

std::string print(const GpuTarget& t) {
    std::string out;
    const auto line = [&](std::string_view name, const std::string& value) {
        fmt::format_to(std::back_inserter(out), "{:<10}{}\n", name, value);
    };
    line("gpu",
         fmt::format("{}, sm_{}, {} multiprocessors at {:.4g} GHz", t.name, t.capability(), t.multiprocessors, t.ghz));
    line("block", fmt::format("{} threads, {} KiB of shared memory", t.block_threads, t.block_shared_bytes >> 10));
    line("sm", fmt::format("{} threads, {} blocks, {} registers, {} KiB of shared memory", t.sm_threads, t.sm_blocks,
                           t.sm_registers, t.sm_shared_bytes >> 10));
    line("memory", fmt::format("{} GB at {:.5g} GB/s, second-level cache {} MiB", t.memory_bytes / 1000000000,
                               t.memory_gbps, t.l2_bytes >> 20));
    line("peaks", fmt::format("f32 {:.6g}, f64 {:.6g}; tensor cores tf32 {:.6g}, f16 {:.6g}, f8 {:.6g} GFLOP/s",
                              t.f32_gflops, t.f64_gflops, t.tf32_gflops, t.f16_gflops, t.f8_gflops));
    line("products", t.has_wgmma() ? "of a warp (mma.sync) and of a warpgroup (WGMMA)" : "of a warp (mma.sync)");
    line("copies", t.has_tma() ? "by threads (cp.async) and of boxes (TMA)" : "by threads (cp.async)");
    for (const GpuRateField& f : gpu_rate_fields())
        if (t.rates.*f.member != 0)
            line(&f == gpu_rate_fields().data() ? "reached" : "",
                 fmt::format("{:<18}{:>10.4g} {:<15} {}", f.name, t.rates.*f.member, f.unit,
                             t.measured ? "measured by bench_probe" : fmt::format("assumed: {}", f.assumed)));
    return out;
}

int blocks_of_sm(const GpuTarget& t, int threads, int registers, int64_t shared_bytes) {
    if (threads < 1 || threads > t.block_threads || registers > t.thread_registers ||
        shared_bytes > t.block_shared_bytes)
        return 0;
    const int warps = (threads + t.warp - 1) / t.warp;
    const int64_t warp_registers = (static_cast<int64_t>(std::max(registers, 1)) * t.warp + 255) / 256 * 256;
    const int64_t kept_by_system = 1024;
    return static_cast<int>(
        std::min<int64_t>({t.sm_blocks, t.sm_threads / (warps * t.warp), t.sm_registers / (warp_registers * warps),
                           t.sm_shared_bytes / (shared_bytes + kept_by_system)}));
}

}  // namespace tilewright
