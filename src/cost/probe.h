#pragma once
// The loops that calibrate() times, one set for each kind of vector instructions.

#include <cstdint>

#include "cost/target.h"

namespace tilewright {

/// The loops for one VectorIsa. Call them only on a CPU that has it.
struct ProbeKernels {
    /// `rounds` times 12 independent multiply-accumulates on full vector registers, nothing else.
    void (*multiply_add)(int64_t rounds);
    int64_t flops_a_round;  ///< f32 operations in a round

    /// Loads `bytes` (a multiple of 512) from `data` (64-byte aligned) into vector registers, `passes` times.
    void (*load)(const void* data, int64_t bytes, int64_t passes);
};

ProbeKernels probe_kernels(VectorIsa isa);

/// `rounds` times four products of 16 x 16 x 32 bf16 numbers on tile registers. Call it only where
/// Target::bf16_tiles().
void probe_tiles(int64_t rounds);
inline constexpr int64_t kTileFlopsARound = int64_t{4} * 2 * 16 * 16 * 32;

/// `rounds` times 16 independent dot products of 16 lanes of two bf16 numbers. Call it only where
/// Target::bf16_dot_instructions().
void probe_dots(int64_t rounds);
inline constexpr int64_t kDotFlopsARound = int64_t{16} * 2 * 16 * 2;

/// `rounds` times 16 independent multiply-adds of 32 lanes of f16. Call it only on a CPU with AVX512_FP16.
void probe_f16(int64_t rounds);
inline constexpr int64_t kF16FlopsARound = int64_t{16} * 2 * 32;

/// `rounds` times 16 integer instructions of one cycle each, each waiting for the one before.
void probe_cycles(int64_t rounds);
inline constexpr int kCyclesARound = 16;

/// Follows `steps` (a multiple of 8) pointers from `node` on, and returns where it ends.
const void* probe_chase(const void* node, int64_t steps);

/// Makes one ring of pointers through all lines of the buffer, in an order no prefetcher guesses: every line's first
/// word points to the next line. Returns a line. The same seed gives the same ring. `bytes` >= `line_bytes` >= 8.
const void* make_ring(void* data, int64_t bytes, int line_bytes, uint64_t seed);

}  // namespace tilewright
