#pragma once
// A convolution whose kernels run slice by slice (orchestrate/slices.h), whatever machine this is.

#include <fmt/format.h>

#include <algorithm>

#include "cost/target.h"
#include "orchestrate/program_test.h"

namespace tilewright::test {

/// Winograd's F(2, 3) along rows of 64 pixels, of so many rows that tiles are several times this machine's second-level
/// cache, and a slice is a few of them.
inline Program sliced_convolution() {
    int64_t l2 = 1 << 20;
    for (const CacheLevel& level : host_target().caches)
        if (level.level == 2) l2 = level.bytes;
    const int64_t row = 4 * 32 * 32 * 4;  // bytes of tiles
    const int64_t rows = 16 * std::max<int64_t>(8, l2 / row / 2);
    return with_weights(fmt::format(R"(program convolution {{
  input x: f32[32, {0}, 66]
  input w: f32[4, 24, 32]
  v: f32[4, 32, {0}, 32] = [4, 32, {0}, 32] sum(i4 < 4) weigh(table{{1, 0, -1, 0, 0, 1, 1, 0, 0, -1, 1, 0, 0, 1, 0, -1}}(index(4*i0 + i4)), @0) where @0 = x[i1, i2, 2*i3 + i4]
  m: f32[4, 24, {0}, 32] = [4, 24, {0}, 32] sum(i4 < 32) mul(@0, @1) where @0 = w[i0, i1, i4], @1 = v[i0, i4, i2, i3]
  y: f32[24, {0}, 64] = [24, {0}, 64] sum(i3 < 4) weigh(table{{1, 1, 1, 0, 0, 1, -1, -1}}(index(4*(i2 % 2) + i3)), @0) then max(acc, 0.0) where @0 = m[i3, i0, i1, i2 // 2]
  output y
}})",
                                    rows));
}

}  // namespace tilewright::test
