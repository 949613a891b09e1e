// Copies of operands in shared memory.

#include "cost/gpu_copy.h"

#include <gtest/gtest.h>

#include <vector>

#include "layout/layout.h"

namespace tilewright {
namespace {

int64_t bytes_in(const char* layout) {
    const Program stages = parse_program(R"(program copy {
  input x: f32[8, 20]
  y: f32[8, 20] = [8, 20] neg(@0) where @0 = x[i0, i1]
  output y
})");
    Load load;
    load.stage = PrimitiveId(0);
    load.access = 0;
    load.layout = parse_layout(layout);
    return GpuCopy(stages, load).bytes(std::vector<int64_t>{8, 20});
}

TEST(GpuCopy, has_the_bytes_of_its_layout) {
    EXPECT_EQ(bytes_in(""), 8 * 20 * 4 + 64);
    EXPECT_EQ(bytes_in("reorder(1, 0) pad(1, 0, 4)"), 20 * 12 * 4 + 64);
    // Dimensions of a split are numbered after it: three blocks of eight, the last one padded.
    EXPECT_EQ(bytes_in("split(1, 8) reorder(1, 0, 2)"), 3 * 8 * 8 * 4 + 64);
}

}  // namespace
}  // namespace tilewright
