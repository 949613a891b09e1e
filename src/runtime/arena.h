#pragma once
// Working memory: one block, and the offsets of many short-lived buffers in it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tilewright {

/// Alignment in bytes of an arena's start and of every planned offset: a cache line, and the widest vector.
inline constexpr int64_t kBufferAlignment = 64;

/// A block of memory that only grows. The bytes are uninitialised.
class Arena {
  public:
    /// Ensures a capacity of at least `bytes`. Growing moves the block and loses its contents; a smaller request does
    /// nothing. From 2 MiB on the block is aligned to 2 MiB and advised to use huge pages. Throws RuntimeError when out
    /// of memory; the arena is empty then.
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

/// A buffer of `bytes` that is live from step `first_step` to step `last_step`, both included.
struct BufferLife {
    int64_t bytes = 0;
    int64_t first_step = 0;
    int64_t last_step = 0;
};

struct MemoryPlan {
    std::vector<int64_t> offsets;  ///< in bytes, for each buffer, multiples of the alignment; 0 for an empty one
    int64_t total = 0;             ///< bytes of the arena that they need
    int64_t lower_bound =
        0;  ///< peak of live bytes, with sizes rounded up to the alignment: a lower bound of every plan
};

/// Offsets, multiples of `alignment`, such that buffers which are live at a common step do not overlap. Buffers are
/// placed one by one, the largest first, each in the smallest gap between the placed buffers with overlapping
/// lifetimes, or behind them. If the result is above the lower bound, other orders are tried (bytes times steps,
/// longest lifetime, first step) and the smallest total is kept. Deterministic. Quadratic in the number of buffers.
/// Throws RuntimeError if the sizes add up to more than 2^63 bytes; negative sizes and lifetimes that end before they
/// begin are InternalErrors.
///
///     64 bytes in steps 0..1, 64 in 1..2, 64 in 2..3  ->  offsets 0, 64, 0; total 128
MemoryPlan plan_memory(std::span<const BufferLife> buffers, int64_t alignment = kBufferAlignment);

}  // namespace tilewright
