// Where a block's threads must meet.

#include "backend/cuda/barriers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tile/online_cases_test.h"
#include "tile/schedule_cases_test.h"

namespace tilewright::cuda {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Paths of the statements with a barrier in front, as text: "0.0.1".
std::vector<std::string> paths(const TileProgram& p, const std::set<ValueId>& registers = {}) {
    std::vector<std::string> out;
    for (const TreePath& path : barriers(p, plan_buffers(p, registers)))
        out.push_back(fmt::format("{}", fmt::join(path, ".")));
    return out;
}

TEST(Barriers, StandBetweenWhoWritesAndWhoReads) {
    // 0.0.0: for k { load b; compute }, then the store; C is added to by the threads that wrote it, but a step later.
    const TileProgram gemm = parse_tile_program(kGemm);
    EXPECT_THAT(paths(gemm), ElementsAre("0.0.0.0", "0.0.0.1", "0.0.1"));
    // In registers it needs none: the load waits until all threads have read the previous tile, the compute until the
    // load has completed.
    EXPECT_THAT(paths(gemm, {gemm.stages.outputs[0]}), ElementsAre("0.0.0.0", "0.0.0.1"));
}

TEST(Barriers, AreNotNeededByStatementsThatShareNothing) {
    const TileProgram copies = schedule_cases::kernel(R"TW(program two {
  input x: f32[8]
  input y: f32[8]
  a: f32[8] = [8] neg(@0) where @0 = x[i0]  ; a ""
  b: f32[8] = [8] exp(@0) where @0 = y[i0]  ; b ""
  output a
  output b
})TW",
                                                      R"TW(axes i="8"
stage 0 over [i]
stage 1 over [i]
compute 0 padding local
compute 1 padding local)TW");
    EXPECT_THAT(paths(copies), IsEmpty());
}

TEST(Barriers, StandBehindAResultInMemoryThatIsReadAgain) {
    const TileProgram chain = schedule_cases::kernel(R"TW(program two {
  input x: f32[8]
  a: f32[8] = [8] neg(@0) where @0 = x[i0]  ; a ""
  b: f32[8] = [8] exp(@0) where @0 = a[7 - i0]  ; b ""
  output a
  output b
})TW",
                                                     R"TW(axes i="8"
stage 0 over [i]
stage 1 over [i]
compute 0 padding local
compute 1 padding local)TW");
    EXPECT_THAT(paths(chain), ElementsAre("1"));
}

}  // namespace
}  // namespace tilewright::cuda
