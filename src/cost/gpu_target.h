#pragma once
// The description of a GPU: the numbers that code generation and estimates use.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

/// An NVIDIA GPU. Rates are those of its data sheet: per second, GB = 1e9 bytes, GFLOP = 1e9 operations, a multiply-add
/// counts two, tensor cores without sparsity. A rate of 0: the GPU has no such unit.
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
    double launch_us = 0;  ///< an empty kernel that follows another in a graph or a busy stream

    int capability() const { return major * 10 + minor; }  ///< 90 for sm_90
    friend bool operator==(const GpuTarget&, const GpuTarget&) = default;
};

GpuTarget a100();  ///< A100 80 GB SXM, sm_80
GpuTarget h200();  ///< H200 141 GB SXM, sm_90
/// "a100", "h200".
std::optional<GpuTarget> gpu_target(std::string_view name);
std::vector<std::string> gpu_target_names();

/// Empty if the description is consistent, otherwise the error.
std::string verify(const GpuTarget& target);
std::string print(const GpuTarget& target);  ///< a human-readable table

/// The number of resident blocks of an SM, limited by threads, registers (allocated in units of 256 per warp) and
/// shared memory. 0 where a single block exceeds a limit.
int blocks_of_sm(const GpuTarget& target, int threads, int registers, int64_t shared_bytes);

}  // namespace tilewright
