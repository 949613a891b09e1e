#pragma once
// A convolution whose kernels run slice by slice (orchestrate/slices.h), whatever machine this is.

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
    TiledConvolution convolution;
    convolution.rows = rows;
    convolution.tiles = 32;
    convolution.then = "then max(acc, 0.0) ";
    return with_weights(convolution.text());
}

}  // namespace tilewright::test
