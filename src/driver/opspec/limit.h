#pragma once
// The least time that an operator can take on a machine.

#include <string>
#include <vector>

#include "cost/target.h"
#include "model/session.h"
#include "program/program.h"

namespace tilewright {

struct Work {
    double flops = 0;  ///< 2 a multiply-add of products and convolutions; nothing else is counted
    double bytes = 0;  ///< that must be read and written at least once
};

/// Bytes of the inputs, constants and outputs, each once; of those that expressions read only in part (rows that a
/// gather picks, pixels that a stride passes over) at most one element a point. Shapes must be numbers.
double bytes_of(const Program& program);

struct Limit {
    double ms = 0;
    bool compute = true;  ///< multiply-adds set it, not memory
    /// Where the bytes lie when the operator runs again and again: "L1", "L2", ..., "memory".
    std::string level;
    double gbps = 0;    ///< of that level, all threads used
    double gflops = 0;  ///< peak of the threads used
};
/// A cache level, or memory: what `threads` threads read from it together.
struct Bandwidth {
    std::string level;  ///< "L1", "L2", ..., "memory"
    double gbps = 0;
    double bytes = 0;  ///< that its caches hold together; infinite for memory
};
/// From the first level to memory. A cache that cores share counts once; each thread adds its bandwidth to a cache's,
/// and to memory's up to what all threads reach.
std::vector<Bandwidth> bandwidths(const Target& target, int threads);
/// The multiply-add peak of `threads` threads, f32.
double peak_gflops(const Target& target, int threads);
/// max(flops / the multiply-add peak, bytes / the bandwidth of the first level that holds all bytes).
Limit limit_of(const Work& work, const Target& target, int threads);

/// What a compiled model should take by the cost model (src/cost/estimate.h): its kernels one after the other. Zero for
/// steps that are no generated kernels.
double estimate_ms(const CompiledModel& model, const Target& target, int threads);

}  // namespace tilewright
