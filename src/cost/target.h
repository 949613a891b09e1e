#pragma once
// The machine to compile for. Scheduling, estimates and code generation all take this one description.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "cost/gpu_target.h"
#include "runtime/cpu_features.h"

namespace tilewright {

/// A rate or a time: the median of `samples` measurements, and how far they lie apart. An assumed value has no samples.
struct Measure {
    double value = 0;
    double spread = 0;  ///< interquartile range over the median
    int samples = 0;

    bool measured() const { return samples > 0; }
    friend bool operator==(const Measure&, const Measure&) = default;
};

/// One level of data cache, as one core sees it.
struct CacheLevel {
    int level = 1;
    int64_t bytes = 0;           ///< as the machine describes itself
    int64_t measured_bytes = 0;  ///< up to where loads really come at this level's latency; 0: not measured
    int line_bytes = 64;
    int shared_by = 1;   ///< CPUs (hardware threads) that share one such cache
    int ways = 0;        ///< lines of a set; 0: unknown
    Measure load_gbps;   ///< sequential loads of whole vectors by one thread, 1e9 bytes a second
    Measure latency_ns;  ///< of one load whose address depends on the load before

    /// What to plan with: the measured size where there is one and it is the smaller.
    int64_t usable_bytes() const { return measured_bytes > 0 && measured_bytes < bytes ? measured_bytes : bytes; }
    friend bool operator==(const CacheLevel&, const CacheLevel&) = default;
};

/// Rates of a core that the default heuristic tiles for, the same for every CPU.
///
/// They differ from Target's calibrated rates on purpose: a default schedule depends on shapes and sizes alone, so that
/// it is the same before and after a calibration. Measured rates differ by a few percent from run to run, and by a
/// factor of two between the vector widths. Rates are per cycle.
struct NominalRates {
    double fma_latency = 4;  ///< cycles until the sum can be used: x86 since Skylake and Zen; in estimates too
    double fmas = 2;         ///< whole vectors: two FMA units, x86 since Haswell and Zen 2
    double loads = 2;        ///< whole vectors: two load ports
    double l1_bytes = 64;
    /// Of a panel of vectors that is read again from L2, and that comes from behind L2. No measurement of either is
    /// recorded; calibrated machines have 16 to 32 and about 5.
    double l2_bytes = 14;
    /// Of cores with 48 KiB of L1, which receive 64 bytes a cycle from L2. Register tiles of 48 columns take 10 % less
    /// time than of 32 where rows map to one set (197 x 768 sums of 3072 terms, 5.6 to 5.0 ms, Intel Xeon 6/167).
    double wide_l2_bytes = 20;
    double far_bytes = 8;
    double l1_panel_bytes = 16 * 1024;  ///< size of the largest panel that stays in L1: half of 32 KiB
    friend bool operator==(const NominalRates&, const NominalRates&) = default;
};

/// A CPU, as a value, and the GPU beside it where kernels are for that. Rates are per second (GB = 1e9 bytes, GFLOP =
/// 1e9 operations, a fused multiply-add counts two); "all" is all `threads` at once, together.
///
/// Until calibrate() has measured them, rates are assumptions at the fast end of what such machines reach, so that a
/// lower bound computed from them stays one.
struct Target {
    std::string cpu;                      ///< as it calls itself, "AMD EPYC"
    std::string cpu_id;                   ///< vendor family/model/stepping, "AuthenticAMD 25/17/1"
    std::string arch;                     ///< "x86_64" or "aarch64"
    std::vector<std::string> features;    ///< as LLVM spells them, sorted: "avx2", "fma", ...
    VectorIsa isa = VectorIsa::baseline;  ///< of generated code; `vector_bits` and `vector_registers` follow (set_isa)
    /// Code may use every feature of this process's CPU. False: those of `isa` and `extra` alone.
    bool native = false;
    std::vector<std::string> extra;
    int vector_bits = 128;
    int vector_registers = 16;
    int cores = 1;    ///< physical cores this process may use
    int threads = 1;  ///< hardware threads this process may use, its control group's quota considered
    int workers = 1;  ///< threads that a kernel's tasks are divided among: `threads`, or the requested number

    Measure ghz;                     ///< clock under a light scalar load
    std::vector<CacheLevel> caches;  ///< data and unified caches, from level 1; never empty
    Measure memory_latency_ns;
    Measure memory_gbps_1;  ///< sequential loads from memory
    Measure memory_gbps_all;
    Measure copy_gbps_1;  ///< memory to memory, bytes read plus bytes written
    Measure copy_gbps_all;
    Measure fma_gflops_1;  ///< f32, full vectors, registers only
    Measure fma_gflops_all;
    Measure tile_gflops_1;  ///< bf16 on tile registers (AMX), registers only; 0: the CPU has none
    Measure tile_gflops_all;
    Measure dot_gflops_1;  ///< bf16 by dot products (AVX512_BF16), full vectors, registers only; 0: the CPU has none
    Measure dot_gflops_all;
    Measure f16_gflops_1;  ///< f16 multiply-adds (AVX512_FP16), full vectors, registers only; 0: the CPU has none
    Measure f16_gflops_all;
    Measure dispatch_us;       ///< an empty loop handed to all threads of a warm pool and awaited
    bool sums_in_f16 = false;  ///< code may add up products of f16 in f16, in steps (`--precision f16`, tile/matrix.h)
    bool calibrated = false;
    bool quick = false;  ///< calibrated by CalibrationLength::quick
    NominalRates nominal;

    std::optional<GpuTarget> gpu;  ///< kernels are for this GPU; the CPU is its host

    bool has(std::string_view feature) const;
    bool may_use(std::string_view feature) const;    ///< whether code may
    std::vector<std::string> code_features() const;  ///< all that code may use, sorted
    /// Whether code may multiply bf16 on tile registers.
    bool bf16_tiles() const { return may_use("amx-tile") && may_use("amx-bf16"); }
    /// Whether code may multiply bytes on tile registers.
    bool byte_tiles() const { return may_use("amx-tile") && may_use("amx-int8"); }
    /// Whether an instruction adds two products of bf16 to a lane (AVX512_BF16).
    bool bf16_dot_instructions() const { return may_use("avx512bf16"); }
    /// Whether products are such sums: where tile registers make bf16 faster anyway, and otherwise where they are
    /// faster than multiply-adds of f32. On an Intel Xeon 6/207 they have half of the rate (`tilewright info
    /// --calibrate`).
    bool bf16_dots() const {
        return bf16_dot_instructions() && (bf16_tiles() || dot_gflops_1.value > fma_gflops_1.value);
    }
    /// Whether an instruction adds four products of bytes, unsigned and signed, to a lane (VNNI).
    bool byte_dot_instructions() const { return may_use("avx512vnni") || may_use("avxvnni"); }
    /// Whether such sums are faster than those of f32: by that instruction, or by two of 16-bit pairs (AVX2).
    bool byte_dots() const { return byte_dot_instructions() || isa == VectorIsa::avx2 || isa == VectorIsa::avx512; }
    /// Whether an instruction multiplies and adds in f16 (AVX512_FP16), faster than in f32.
    bool f16_products() const { return may_use("avx512fp16") && f16_gflops_1.value > fma_gflops_1.value; }
    /// Whether products are such sums.
    bool f16_sums() const { return sums_in_f16 && f16_products(); }
    /// Whether products of bf16 are faster than those of f32.
    bool bf16_products() const { return bf16_tiles() || bf16_dots(); }
    int lanes(DType t) const { return vector_bits / 8 / static_cast<int>(byte_size(t)); }
    int64_t l2_bytes() const;          ///< usable_bytes() of the second level; 1 MiB where there is none
    int64_t last_cache_bytes() const;  ///< usable_bytes() of the largest level; larger tensors come from memory

    // What schedules are made for: of the CPU, or of the GPU where there is one.
    int micro_lanes() const;         ///< f32 elements of a vector register; of a GPU's 16-byte loads
    int micro_registers() const;     ///< such vectors that a micro-kernel may hold
    int tasks_at_a_time() const;     ///< worker threads, or multiprocessors
    int64_t task_bytes() const;      ///< what a task reads repeatedly should fit: the L2, or a block's shared memory
    int64_t resident_bytes() const;  ///< larger tensors come from memory
    friend bool operator==(const Target&, const Target&) = default;
};

/// The last of the architecture's instruction sets whose features the target has.
VectorIsa isa_of(const Target& target);
/// Sets isa, and the vector width and registers it implies.
void set_isa(VectorIsa isa, Target& target);

/// A machine of which nothing but its vector instructions is known: for compiling for elsewhere, and for tests that
/// must not depend on the host. One core, common cache sizes, assumed rates.
Target generic_target(VectorIsa isa);

/// The target, with code for these instructions and for no others.
Target restricted(Target target, VectorIsa isa);
Target restricted(Target target, const CodeLevel& level);
/// The target, with kernels for this GPU.
Target with_gpu(Target target, const GpuTarget& gpu);

/// This machine, as it describes itself, with assumed rates. Takes about a millisecond, never fails: what cannot be
/// read is as in generic_target().
Target host_target();

/// What is being measured and which part of the whole is done, 0 to 1.
using CalibrationProgress = std::function<void(std::string_view step, double done)>;

/// How long calibrate() may take.
enum class CalibrationLength : uint8_t {
    /// At most about 1 second, 2 on a busy machine: a tenth of the samples, at most 256 MiB of memory. Usable cache
    /// sizes are measured by bandwidth alone, of the last level alone.
    quick,
    /// About 5 seconds, up to three times that on a busy machine.
    full
};

/// host_target() with every rate measured on all usable CPUs. Samples during which the system took the CPU away are
/// repeated as long as time allows. Uses up to a quarter of the free memory, at most 1 GiB. Throws RuntimeError without
/// memory or threads.
Target calibrate(CalibrationLength length, const CalibrationProgress& progress = {});

/// Empty if the target makes sense: sizes and rates positive and finite, caches growing. Otherwise what is wrong.
std::string verify(const Target& target);

std::string print(const Target& target);    ///< a table for people
std::string to_json(const Target& target);  ///< all of it, indented
/// The inverse of to_json. Throws RuntimeError that says what is wrong with the text, or what verify() says.
Target target_from_json(std::string_view json);

/// The machine as 16 hexadecimal digits: changes with model, features, caches and the CPUs this process may use, not
/// with measured rates.
std::string target_key(const Target& target);

/// The folder for files that are kept between runs: $XDG_CACHE_HOME/tilewright, or ~/.cache/tilewright. nullopt where
/// neither can be known. Not created.
std::optional<std::string> cache_folder();

/// cache_folder(). Throws RuntimeError: there is none, or other users could change the rates in it
/// (require_kept_entries).
std::string kept_folder();

/// <cache_folder>/target-<target_key>.json; throws RuntimeError where there is no cache folder.
std::string target_path(const Target& target);

/// What save_target left for this machine. nullopt where there is nothing, it cannot be understood, or it describes
/// another machine; then `why` says so, if given.
std::optional<Target> load_target(std::string* why = nullptr);
std::optional<Target> load_target(const std::string& path, const Target& host, std::string* why = nullptr);

/// Writes the target for load_target to find, creating folders. Readers see the old file or the new one, never a part.
/// Returns the path. Throws RuntimeError that names the path.
std::string save_target(const Target& target);
void save_target(const Target& target, const std::string& path);

/// load_target(), else host_target().
Target current_target();

}  // namespace tilewright
