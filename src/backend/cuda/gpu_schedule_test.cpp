// Kernels of every kind get a schedule for a GPU from the rule, and compute what their stages do.

#include "schedule/gpu/gpu_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/lockstep_cases_test.h"
#include "schedule/chain/chains_test.h"
#include "schedule/scheduler.h"
#include "tile/schedule_cases_test.h"

namespace tilewright::cuda {
namespace {

using namespace test;
using testing::HasSubstr;
using testing::Not;

GpuScheduling on(Precision precision, GpuTarget target = a100()) { return {std::move(target), precision}; }

TileProgram scheduled(const std::string& stages, Precision precision = Precision::F32,
                      const std::vector<std::vector<size_t>>& rows = {}) {
    Program p = parse_program(stages);
    IndexVector<PrimitiveId, std::vector<size_t>> row_axes(p.primitives.size());
    for (size_t s = 0; s < rows.size(); ++s) row_axes[PrimitiveId(s)] = rows[s];
    return gpu_schedule(std::move(p), row_axes, on(precision));
}

LockstepCase whole(const std::string& name, const TileProgram& p,
                   const std::vector<schedule_cases::Sizes>& sizes = {{}}) {
    LockstepCase c{name, p, {}, 0};
    for (const auto& s : sizes) c.inputs.push_back(schedule_cases::whole_numbers(p.stages, s));
    return c;
}

std::string product(const std::string& m, const std::string& n, const std::string& k, const std::string& type = "f32") {
    return schedule_cases::product(m, n, k, type);
}

TEST(GpuSchedule, PutsLargeProductsOnTheUnitsThatThePrecisionAllows) {
    const auto text = [](Precision precision, const std::string& type) {
        return print(scheduled(product("1024", "1024", "1024", type), precision));
    };
    EXPECT_THAT(text(Precision::F32, "f32"), Not(HasSubstr("matrix")));
    EXPECT_THAT(text(Precision::TF32, "f32"), HasSubstr("matrix tf32"));
    EXPECT_THAT(text(Precision::F16, "f32"), HasSubstr("matrix f16"));
    EXPECT_THAT(text(Precision::F32, "bf16"), HasSubstr("matrix bf16"));
    // Copies run ahead, sums stay until they are stored.
    EXPECT_THAT(text(Precision::F32, "f16"), testing::AllOf(HasSubstr("stages"), HasSubstr("store c")));
    // A vector is read once.
    EXPECT_THAT(print(scheduled(product("1", "1024", "1024"), Precision::F16)), Not(HasSubstr("load")));
}

TEST(GpuSchedule, TakesWhatFitsTheSharedMemory) {
    GpuTarget small = a100();
    for (const int64_t bytes : {int64_t{163} << 10, int64_t{20} << 10, int64_t{6} << 10}) {
        small.block_shared_bytes = bytes;
        const IndexVector<PrimitiveId, std::vector<size_t>> rows(1);
        const TileProgram t =
            gpu_schedule(parse_program(product("512", "512", "512", "f16")), rows, on(Precision::F32, small));
        EXPECT_LE(generate(t, {small, 256}).shared_bytes, bytes);
        EXPECT_THAT(print(t), HasSubstr("matrix f16"));
    }
}

TEST(GpuSchedule, OfProductsComputesWhatTheySay) {
    std::vector<LockstepCase> cases;
    cases.push_back(whole("f32", scheduled(product("70", "90", "40"))));
    cases.push_back(whole("tf32", scheduled(product("70", "90", "40"), Precision::TF32)));
    cases.push_back(whole("halves", scheduled(product("33", "128", "200", "f16"))));
    cases.push_back(whole("any rows", scheduled(product("$m", "64", "48", "bf16")), {{{"m", 1}}, {{"m", 100}}}));
    cases.push_back(whole("vector", scheduled(product("1", "70", "300"))));
    cases.push_back(whole("batched", scheduled(R"TW(program p {
  input a: f32[3, 20, 32]
  input b: f32[3, 40, 32]
  c: f32[3, 20, 40] = [3, 20, 40] sum(i3 < 32) mul(@0, @1) where @0 = a[i0, i1, i3], @1 = b[i0, i2, i3]
  output c
})TW",
                                               Precision::F16)));
    const std::string convolution = R"TW(program p {
  input x: f32[2, 16, 9, 14]
  input w: f32[24, 16, 3, 3]
  y: f32[2, 24, 9, 14] = [2, 24, 9, 14] sum(i4 < 16, i5 < 3, i6 < 3) mul(@0, @1) where @0 = x[i0, i4, i2 + i5 - 1, i3 + i6 - 1] when i2 + i5 - 1 >= 0 and -i2 - i5 + 9 >= 0 and i3 + i6 - 1 >= 0 and -i3 - i6 + 14 >= 0 else 0, @1 = w[i1, i4, i5, i6]
  output y
})TW";
    cases.push_back(whole("convolution", scheduled(convolution)));
    cases.push_back(whole("convolution on matrix instructions", scheduled(convolution, Precision::BF16)));
    expect_right(cases);
}

TEST(GpuSchedule, OfEverythingElseComputesWhatItSays) {
    std::vector<LockstepCase> cases;
    cases.push_back(whole("transposition", scheduled(schedule_cases::transposition("f32", "70", "90"))));
    cases.push_back(
        whole("pooling", scheduled(schedule_cases::kPooling), {{{"h", 5}, {"w", 40}}, {{"h", 1}, {"w", 2}}}));
    for (const auto& [shape, index] : {std::pair("40, 300", "i0, i1"), std::pair("300, 40", "i1, i0")})
        cases.push_back(whole(index, scheduled(fmt::format(R"TW(program p {{
  input x: f32[{}]
  y: f32[40] = [40] sum(i1 < 300) @0 where @0 = x[{}]
  output y
}})TW",
                                                           shape, index))));
    cases.push_back(whole("rows", scheduled(R"TW(program p {
  input x: f32[9, 40]
  m: f32[9] = [9] max(i1 < 40) @0 where @0 = x[i0, i1]
  y: f32[9, 40] = [9, 40] sub(@0, @1) where @0 = x[i0, i1], @1 = m[i0]
  output y
})TW",
                                            Precision::F32, {{0}, {0}})));
    expect_right(cases);
}

TEST(GpuSchedule, OfChainsComputesWhatTheySay) {
    std::vector<LockstepCase> cases;
    for (const auto& [stages, precision] :
         {std::pair(chain::two_products(48, 64, 32, 40), Precision::TF32),
          std::pair(chain::attention(2, 40, 64, 32, 16), Precision::F16),
          std::pair(chain::attention(1, 33, 50, 9, 20, "add(mul(acc, 0.5), @2)"), Precision::F32)}) {
        Scheduling how;
        how.kind = SchedulerKind::Mcfuser;
        how.gpu = on(precision);
        auto t = make_chain_schedule(stages, how);
        ASSERT_TRUE(t);
        EXPECT_LE(generate(*t, {a100(), 256}).shared_bytes, a100().block_shared_bytes);
        // Sixteenths below a half: the first sums have 11 bits at most, which every type here holds.
        std::vector<Tensor> inputs = schedule_cases::whole_numbers(t->stages, {});
        for (Tensor& x : inputs)
            for (int64_t i = 0; i < x.count(); ++i) x.set(i, x.get(i) / 16);
        cases.push_back({stages.name, std::move(*t), {inputs}, stages.primitives.size() == 2 ? 0 : 2e-3});
    }
    expect_right(cases);
}

}  // namespace
}  // namespace tilewright::cuda
