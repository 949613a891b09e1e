#pragma once
// Lines, pages and sets of the first-level data cache: which accesses collide. One geometry for all machines, that of
// x86 cores: 64 sets of lines of 64 bytes, in 8 ways of 32 KiB or 12 ways of 48 KiB.

#include <cstdint>

namespace tilewright {

inline constexpr int64_t kLineBytes = 64;
inline constexpr int64_t kPageBytes = 4096;  ///< hardware prefetchers follow a stream to the end of its page
inline constexpr int64_t kL1Sets = 64;
inline constexpr int64_t kL1Ways = 8;

/// After how many steps of `stride_bytes` an access meets the set of the first one again: 1 where all steps collide.
///     4096  ->  1,    1024  ->  4,    4  ->  1024
int64_t steps_to_same_set(int64_t stride_bytes);

/// How many points of a grid of outer x inner points fall into one set, where most do. Each point counts as a line of
/// its own, because each is the head of a stream.
int64_t points_in_fullest_set(int64_t outer, int64_t outer_stride_bytes, int64_t inner, int64_t inner_stride_bytes);

}  // namespace tilewright
