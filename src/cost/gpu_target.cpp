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
    t.launch_us = 2.5;
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
    t.launch_us = 0.9;  // measured on an H100 in a graph (bench_probe)
    return t;
}

std::optional<GpuTarget> gpu_target(std::string_view name) {
    for (GpuTarget& t : std::vector<GpuTarget>{a100(), h200()})
        if (t.name == name) return std::move(t);
    return std::nullopt;
}

std::vector<std::string> gpu_target_names() { return {a100().name, h200().name}; }

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
    for (const double rate : {t.f64_gflops, t.tf32_gflops, t.f16_gflops, t.f8_gflops, t.launch_us})
        if (!std::isfinite(rate) || rate < 0) return "a rate is negative or not a number";
    return {};
}

std::string print(const GpuTarget& t) {
    std::string out;
    const auto line = [&](std::string_view name, const std::string& value) {
        fmt::format_to(std::back_inserter(out), "{:<10}{}\n", name, value);
    };
    line("gpu",
         fmt::format("{}, sm_{}, {} multiprocessors at {} GHz", t.name, t.capability(), t.multiprocessors, t.ghz));
    line("block", fmt::format("{} threads, {} KiB of shared memory", t.block_threads, t.block_shared_bytes >> 10));
    line("sm", fmt::format("{} threads, {} blocks, {} registers, {} KiB of shared memory", t.sm_threads, t.sm_blocks,
                           t.sm_registers, t.sm_shared_bytes >> 10));
    line("memory", fmt::format("{} GB at {} GB/s, second-level cache {} MiB", t.memory_bytes / 1000000000,
                               t.memory_gbps, t.l2_bytes >> 20));
    line("rates", fmt::format("f32 {}, f64 {}; tensor cores tf32 {}, f16 {}, f8 {} GFLOP/s", t.f32_gflops, t.f64_gflops,
                              t.tf32_gflops, t.f16_gflops, t.f8_gflops));
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
