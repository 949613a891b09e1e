#pragma once
// What a GPU can do: the numbers that kernels are generated for and estimated with.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

/// An NVIDIA GPU, as a value. Rates are those of its data sheet: per second, GB = 1e9 bytes, GFLOP = 1e9 operations, a
/// multiply-add counts two, tensor cores without sparsity. 0: it has no such unit.
struct GpuTarget {
    std::string name;                ///< "h200"
    int major = 8, minor = 0;        ///< compute capability
    int multiprocessors = 1;         ///< streaming multiprocessors (SMs)
    int warp = 32;                   ///< threads that run in step
    int block_threads = 1024;        ///< most threads of a block
    int sm_threads = 2048;           ///< most threads of an SM
    int sm_blocks = 32;              ///< most blocks of an SM
    int64_t sm_registers = 65536;    ///< of 32 bits
    int thread_registers = 255;      ///< most of a thread
    int64_t block_shared_bytes = 0;  ///< most shared memory of a block, the opt-in part included
    int64_t sm_shared_bytes = 0;     ///< of all blocks of an SM, with 1 KiB a block that the system keeps
    int64_t l2_bytes = 0;
    int64_t memory_bytes = 0;
    double ghz = 0;          ///< boost clock
    double memory_gbps = 0;  ///< memory to SMs
    double f32_gflops = 0;   ///< multiply-adds of the ordinary cores
    double f64_gflops = 0;
    double tf32_gflops = 0;  ///< tensor cores from here on
    double f16_gflops = 0;   ///< and bfloat16
    double f8_gflops = 0;
    double launch_us = 0;  ///< an empty kernel behind another, in a graph or stream that never runs dry

    int capability() const { return major * 10 + minor; }  ///< 90 for sm_90
    friend bool operator==(const GpuTarget&, const GpuTarget&) = default;
};

GpuTarget a100();  ///< A100 80 GB SXM, sm_80
GpuTarget h200();  ///< H200 141 GB SXM, sm_90
/// "a100", "h200".
std::optional<GpuTarget> gpu_target(std::string_view name);
std::vector<std::string> gpu_target_names();

/// Empty if the description makes sense, otherwise what is wrong.
std::string verify(const GpuTarget& target);
std::string print(const GpuTarget& target);  ///< a table for people

/// How many blocks an SM holds at a time: limited by threads, registers (given in units of 256 a warp) and shared
/// memory. 0 where one is too much.
int blocks_of_sm(const GpuTarget& target, int threads, int registers, int64_t shared_bytes);

}  // namespace tilewright
