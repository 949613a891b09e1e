#pragma once
// The description of a GPU: the numbers that code generation and estimates use.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

/// Rates and latencies that kernels reach, which the cost model uses. Measured by bench_probe on the device; before
/// that, assumed from the data sheet and from what an H100 reaches of its own (docs/gpu.md). 0: the GPU has no such
/// unit.
struct GpuRates {
    double launch_us = 0;        ///< an empty kernel that follows another in a graph or a busy stream
    double memory_gbps = 0;      ///< memory to SMs
    double cache_bytes = 0;      ///< from the L2, per clock and SM, whatever the other SMs do
    double shared_bytes = 0;     ///< from shared memory, per clock and SM
    double shared_clocks = 0;    ///< latency of shared memory
    double copy_us = 0;          ///< until a copy from memory has arrived in shared memory
    double drain_us = 0;         ///< to restart the matrix units after all their products are done
    double f32_gflops = 0;       ///< multiply-adds of the ordinary cores
    double warp_f16_gflops = 0;  ///< products of a warp (mma.sync); bfloat16 as well
    double warp_tf32_gflops = 0;
    double group_f16_gflops = 0;  ///< products of a warpgroup (WGMMA); bfloat16 as well
    double group_tf32_gflops = 0;
    friend bool operator==(const GpuRates&, const GpuRates&) = default;
};

/// A member of GpuRates: its name in files, its unit, and where its assumed value comes from.
struct GpuRateField {
    const char* name;
    const char* unit;
    double GpuRates::*member;
    const char* assumed;
};
std::span<const GpuRateField> gpu_rate_fields();

/// An NVIDIA GPU. Rates outside of `rates` are those of its data sheet: per second, GB = 1e9 bytes, GFLOP = 1e9
/// operations, a multiply-add counts two, tensor cores without sparsity. A rate of 0: the GPU has no such unit.
struct GpuTarget {
    std::string name;                ///< "h200"
    int major = 8, minor = 0;        ///< compute capability
    int multiprocessors = 1;         ///< streaming multiprocessors (SMs)
    int warp = 32;                   ///< threads that execute in lockstep
    int block_threads = 1024;        ///< maximum per block
    int sm_threads = 2048;           ///< maximum per SM
    int sm_blocks = 32;              ///< maximum per SM
    int64_t sm_registers = 65536;    ///< of 32 bits
    int thread_registers = 255;      ///< maximum per thread
    int64_t block_shared_bytes = 0;  ///< maximum per block, including the opt-in part
    int64_t sm_shared_bytes = 0;     ///< of all blocks of an SM; the system reserves 1 KiB of it per block
    int64_t l2_bytes = 0;
    int64_t memory_bytes = 0;
    double ghz = 0;          ///< boost clock
    double memory_gbps = 0;  ///< memory to SMs
    double f32_gflops = 0;   ///< multiply-adds of the ordinary cores
    double f64_gflops = 0;
    double tf32_gflops = 0;  ///< tensor cores from here on
    double f16_gflops = 0;   ///< and bfloat16
    double f8_gflops = 0;
    GpuRates rates;
    bool measured = false;  ///< `rates` are measured on this device
    int driver = 0;  ///< version of CUDA that the device's driver has, 13000 for 13.0; 0: no device that is there

    int capability() const { return major * 10 + minor; }  ///< 90 for sm_90
    // What follows from the compute capability; nothing else compares it.
    bool has_wgmma() const { return capability() == 90; }  ///< products of four warps, which no later GPU has
    bool has_tma() const { return major >= 9; }            ///< copies of boxes of tensors
    friend bool operator==(const GpuTarget&, const GpuTarget&) = default;
};

GpuTarget a100();  ///< A100 80 GB SXM, sm_80
GpuTarget h200();  ///< H200 141 GB SXM, sm_90
/// "a100", "h200".
std::optional<GpuTarget> gpu_target(std::string_view name);
std::vector<std::string> gpu_target_names();

/// The name of a compute capability for NVRTC and ptxas, with the instructions of that one alone where kernels use
/// them: "sm_80", "sm_90a".
std::string architecture_name(int capability);

/// Sets the peak rates that a driver does not report, from compute capability, SMs and clock.
void assume_peaks(GpuTarget& target);
/// Sets `rates` as they are assumed before they are measured.
void assume_rates(GpuTarget& target);

/// Empty if the description is consistent, otherwise the error.
std::string verify(const GpuTarget& target);
std::string print(const GpuTarget& target);  ///< a human-readable table

/// The number of resident blocks of an SM, limited by threads, registers (allocated in units of 256 per warp) and
/// shared memory. 0 where a single block exceeds a limit.
int blocks_of_sm(const GpuTarget& target, int threads, int registers, int64_t shared_bytes);

}  // namespace tilewright
