// Where a program's constants are when a kernel starts.

#include "compile/planned_cost.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cost/target_with_test.h"
#include "program/program.h"

namespace tilewright {
namespace {

/// y = x + w, with w of `kib` KiB.
Program with_constant(int64_t kib) {
    Program p = parse_program(fmt::format(R"(program p {{
  input x: f32[{0}, 256]
  input w: f32[{0}, 256]
  y: f32[{0}, 256] = [{0}, 256] add(@0, @1) where @0 = x[i0, i1], @1 = w[i0, i1]
  output y
}})",
                                          kib));
    const ValueId w = p.inputs.at(1);
    p.inputs.pop_back();
    p.constants.emplace(w, Tensor(DType::F32, {kib, 256}));
    return p;
}

TEST(ConstantsAt, AreInTheNearestCacheThatHoldsAllOfThem) {
    const Target target = test::target_with();
    const int64_t near = target.l2_bytes() / 1024, last = target.last_cache_bytes() / 1024;
    ASSERT_LT(near, last);
    EXPECT_EQ(constants_at(with_constant(1), target), Residence::Near);
    EXPECT_EQ(constants_at(with_constant(near), target), Residence::Near);
    EXPECT_EQ(constants_at(with_constant(near + 1), target), Residence::LastCache);
    EXPECT_EQ(constants_at(with_constant(last), target), Residence::LastCache);
    EXPECT_EQ(constants_at(with_constant(last + 1), target), Residence::Memory);
}

TEST(ConstantsAt, OnAGpuAreNear) {
    Target target = test::target_with();
    target.gpu.emplace();
    EXPECT_EQ(constants_at(with_constant(1 << 17), target), Residence::Near);
}

}  // namespace
}  // namespace tilewright
