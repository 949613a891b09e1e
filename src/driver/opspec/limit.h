#pragma once
// A lower bound of the time of an operator on a machine.

#include <string>
#include <vector>

#include "cost/target.h"
#include "model/session.h"
#include "program/program.h"
#include "schedule/gpu/gpu_schedule.h"

namespace tilewright {

struct Work {
    double flops = 0;  ///< 2 per multiply-add of products and convolutions; other operations are not counted
    double bytes = 0;  ///< that must be read and written at least once
    /// Those of `flops` whose factors are stored in two bytes (bf16) and in one.
    double bf16_flops = 0, byte_flops = 0;
};

/// Bytes of the inputs, constants and outputs, each once; for tensors that are only partly read (rows of a gather,
/// pixels of a strided window) at most one element per point. Shapes must be numbers.
double bytes_of(const Program& program);

struct Limit {
    double ms = 0;
    bool compute = true;  ///< limited by multiply-adds, not memory
    /// The memory level that holds the bytes when the operator is run repeatedly: "L1", "L2", ..., "memory".
    std::string level;
    double gbps = 0;           ///< of that level, all threads used
    double gflops = 0;         ///< multiply-add peak of the threads used
    std::string unit = "FMA";  ///< of most products: "FMA", "bf16", "int8"; of a GPU also "tf32", "f16"
};
/// The total read bandwidth of all workers of a target, or of all SMs of its GPU, from a cache level or memory.
struct Bandwidth {
    std::string level;  ///< "L1", "L2", ..., "memory"
    double gbps = 0;
    double bytes = 0;  ///< total capacity of its caches; infinite for memory
};
/// From the first level to memory. A cache shared by cores counts once; each thread adds its bandwidth to a cache's,
/// and to memory's up to the total of all threads. Of a GPU: its L2 and its memory.
std::vector<Bandwidth> bandwidths(const Target& target);
/// The multiply-add peak of all workers, f32; of a GPU, of products whose operands may be rounded to `precision`.
double peak_gflops(const Target& target, Precision precision = Precision::F32);
/// max(flops / the multiply-add peak, of bf16 numbers that of the matrix instructions, bytes / the bandwidth of the
/// first level that holds all bytes). `precision`: to which a GPU's products may round f32 operands.
Limit limit_of(const Work& work, const Target& target, Precision precision = Precision::F32);

/// The estimate of the cost model (src/cost/estimate.h) for a compiled model: the sum over its kernels. Steps that are
/// not generated kernels count as zero.
double estimate_ms(const CompiledModel& model, const Target& target);

}  // namespace tilewright
