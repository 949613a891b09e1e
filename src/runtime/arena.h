#pragma once
// Working memory: one block, and where in it each of many short-lived buffers goes.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tilewright {

/// Alignment in bytes of an arena's start and of every planned offset: a cache line, and the widest vector.
inline constexpr int64_t kBufferAlignment = 64;

/// A block of memory that grows and never shrinks. The bytes are uninitialised.
class Arena {
  public:
    /// At least `bytes` from here on. Growing moves the block and loses its contents; asking for no more than there is
    /// does nothing. From 2 MiB on the block starts at a multiple of 2 MiB and the system is advised to back it with
    /// huge pages. Throws RuntimeError when the memory is not to be had; the arena is empty then.
    void reserve(int64_t bytes);

    std::byte* data() const { return block_.get(); }  ///< 64-byte aligned; null while the capacity is 0
    int64_t capacity() const { return capacity_; }    ///< in bytes, a multiple of 64

  private:
    struct Free {
        void operator()(std::byte* p) const;
    };
    std::unique_ptr<std::byte[], Free> block_;
    int64_t capacity_ = 0;
};

/// A buffer that holds `bytes` from step `first_step` to step `last_step`, both included.
struct BufferLife {
    int64_t bytes = 0;
    int64_t first_step = 0;
    int64_t last_step = 0;
};

struct MemoryPlan {
    std::vector<int64_t> offsets;  ///< in bytes, for each buffer, multiples of kBufferAlignment; 0 for an empty one
    int64_t total = 0;             ///< bytes of the arena they need
    int64_t lower_bound =
        0;  ///< bytes alive at the busiest step, sizes rounded up to the alignment: no plan is smaller
};

/// Offsets such that buffers alive at a common step do not overlap. Buffers are placed one by one, each in the smallest
/// gap left by those already placed whose lives overlap its own, or behind them; the largest first. Where that misses
/// the lower bound other orders are tried (bytes times steps, longest life, order of birth) and the smallest total is
/// kept. Depends on nothing but the arguments. Quadratic in the number of buffers. Throws RuntimeError when the sizes
/// add up to more than 2^63 bytes; negative sizes and lives that end before they begin are our bug.
///
///     64 bytes in steps 0..1, 64 in 1..2, 64 in 2..3  ->  offsets 0, 64, 0; total 128
MemoryPlan plan_memory(std::span<const BufferLife> buffers);

}  // namespace tilewright
