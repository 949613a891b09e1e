#pragma once
// Lines, pages and sets of the first-level data cache, from which conflicts of accesses follow. One geometry stands for
// all machines, that of x86 cores: 64 sets of lines of 64 bytes, in 8 ways of 32 KiB or 12 ways of 48 KiB.

#include <cstdint>

#include "cost/target.h"

namespace tilewright {

inline constexpr int64_t kLineBytes = 64;
inline constexpr int64_t kPageBytes = 4096;  ///< a hardware prefetcher follows a stream to the end of its page
inline constexpr int64_t kL1Sets = 64;
inline constexpr int64_t kL1Ways = 8;

/// Of the target's first-level cache; of one with unknown caches, 32 KiB in 8 ways. `l1_ways` assumes 64 sets.
int64_t l1_bytes(const Target& target);
int64_t l1_ways(const Target& target);

/// Bytes after which addresses return to the same set: those of a way. 0 for caches behind the second, whose sets are
/// hashes of addresses. Of unknown ways, 8 are assumed.
///     48 KiB in 12 ways  ->  4096,    2 MiB in 16 ways  ->  131072
int64_t way_bytes(const CacheLevel& cache);

/// The number of steps of `stride_bytes` after which an access returns to the set of the first one; 1: all steps
/// conflict.
///     4096  ->  1,    1024  ->  4,    4  ->  1024
int64_t steps_to_same_set(int64_t stride_bytes);

/// The number of points of an outer x inner grid in the set that holds most of them. Each point is the head of a
/// stream, so each counts as a line of its own.
int64_t points_in_fullest_set(int64_t outer, int64_t outer_stride_bytes, int64_t inner, int64_t inner_stride_bytes);

}  // namespace tilewright
