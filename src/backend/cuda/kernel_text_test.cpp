// Whatever the tiles, the text of a kernel gives what its stages give, thread by thread.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include <random>

#include "backend/cuda/lockstep_cases_test.h"
#include "base/error.h"
#include "cost/target_with_test.h"
#include "schedule/chain/chains_test.h"
#include "schedule/chain/realise.h"
#include "tile/online_cases_test.h"
#include "tile/random_case_test.h"
#include "tile/schedule_cases_test.h"

namespace tilewright::cuda {
namespace {

using namespace test;
using testing::HasSubstr;
using testing::Not;

TEST(CudaText, OfSchedulesForEveryRestComputesWhatTheySay) {
    std::vector<LockstepCase> cases;
    for (const schedule_cases::Group& g : schedule_cases::all())
        for (const schedule_cases::Case& c : g.cases) {
            cases.push_back({g.name, c.program, {}, c.tolerance});
            for (const schedule_cases::Sizes& s : c.sizes)
                cases.back().inputs.push_back(schedule_cases::whole_numbers(c.program.stages, s));
        }
    expect_right(cases);
}

TEST(CudaText, OfOnlineSoftmaxIsRightOnHardRows) {
    std::vector<LockstepCase> cases;
    const auto add = [&](const std::string& text) {
        cases.push_back({"attention", parse_tile_program(text), {}, 1e-5});
        for (const float poison : {0.25F, std::numeric_limits<float>::quiet_NaN(), kInf})
            cases.back().inputs.push_back(hard_inputs(poison));
    };
    for (const char* step : {"for n by 3", "for n by 1", "for n by 4", "for n by 8"})
        add(changed(kAttention, "for n by 3", step));
    const std::string wide = changed(
        changed(changed(changed(changed(kAttention, "compute 0", "compute 0 vector n lanes 4 registers [m=2 n=4]"),
                                "compute 1 online", "compute 1 online vector n lanes 2 registers [n=4]"),
                        "compute 2", "compute 2 vector n lanes 4 registers [n=4]"),
                "compute 3", "compute 3 vector n lanes 2 registers [n=4]"),
        "compute 4", "compute 4 vector h lanes 4 registers [m=4 h=4]");
    add(wide);
    add(changed(wide, "for n by 3", "for n by 4"));
    add(changed(wide, "compute 1 online vector n lanes 2 registers [n=4]",
                "compute 1 online vector m lanes 4 registers [m=4]"));
    add(changed(wide, "compute 4 vector h lanes 4 registers [m=4 h=4]",
                "compute 4 vector m lanes 4 registers [m=4 h=2]"));
    add(changed(kAttention, "    compute 4 padding partition\n",
                "    for h by 2 {\n      compute 4 vector h lanes 2 registers [m=3 h=2] padding partition\n    }\n"));
    expect_right(cases);
}

/// Candidates of a chain's space (schedule/chain), tiles of any size.
std::vector<TileProgram> schedules_of(const Program& stages, size_t count, std::mt19937_64& rng) {
    std::vector<TileProgram> out;
    const auto c = chain::make_chain(stages);
    if (!c) return out;
    const Target target = tilewright::test::target_with({.lanes = 4, .vector_registers = 16});
    const auto expressions = chain::make_space(*c).expressions;
    for (int tries = 0; out.size() < count && tries < 40; ++tries) {
        chain::Candidate k{expressions[rng() % expressions.size()], {}};
        for (const size_t a : c->tiled) {
            const auto extent = static_cast<uint64_t>(c->extents[a]);
            k.tiles.push_back(static_cast<int64_t>(rng() % 3 == 0 ? extent : 1 + rng() % extent));
        }
        if (auto t = chain::realise(*c, k, target)) out.push_back(std::move(*t));
    }
    return out;
}

TEST(CudaText, OfChainsAndAttentionsComputesWhatTheySay) {
    std::vector<LockstepCase> cases;
    std::mt19937_64 rng(7);
    for (const Program& stages : chain::small_chains())
        for (TileProgram& t : schedules_of(stages, 4, rng)) {
            const std::vector<Tensor> inputs = random_inputs(t.stages, cases.size());
            cases.push_back({stages.name, std::move(t), {inputs}, 1e-3});
        }
    ASSERT_GT(cases.size(), size_t{20});
    expect_right(cases);
}

/// relu(A B + bias) as a GPU runs it: tiles of both operands in shared memory, a register tile a thread.
TileProgram product(int64_t m, int64_t n, int64_t k, const std::string& schedule, const std::string& type = "f32") {
    return schedule_cases::kernel(
        schedule_cases::product(std::to_string(m), std::to_string(n), std::to_string(k), type),
        schedule_cases::product_axes(std::to_string(m), std::to_string(n), std::to_string(k)) + schedule);
}
const std::string kBlocked = R"TW(parallel m by 32 {
  parallel n by 64 {
    for k by 8 {
      load 0 access 0 layout "reorder(1, 0)" padding local
      load 0 access 1 layout "" padding local
      compute 0 vector n lanes 4 registers [m=4 n=8] order [m n k] vthreads [n=2] padding local
    }
    store c padding local
  }
})TW";

TEST(CudaText, KeepsSumsInRegistersAndCopiesVectors) {
    const KernelText text = generate(product(64, 128, 24, kBlocked), h200());
    EXPECT_EQ(text.threads, 64);
    EXPECT_THAT(text.text, HasSubstr("float r_c[4][8];"));
    EXPECT_THAT(text.text, Not(HasSubstr("s_c")));
    EXPECT_THAT(text.text, HasSubstr("tw::load<4>(b, g_b"));  // memory to shared memory
    EXPECT_THAT(text.text, HasSubstr("tw::store<4>(s_b"));
    EXPECT_THAT(text.text, HasSubstr("s_a + (tile_m * 4 + k * 32)"));  // shared memory to registers
    EXPECT_THAT(text.text, HasSubstr("tw::store<4>(g_c"));
    // Whole tiles need no condition.
    EXPECT_THAT(text.text, Not(HasSubstr("if (block")));
    EXPECT_EQ(text.shared_bytes, (32 + 64) * 8 * 4 + 2 * 64);
}

TEST(CudaText, OfBlockedProductsComputesWhatTheySay) {
    std::vector<LockstepCase> cases;
    for (const char* type : {"f32", "f64", "f16", "i32"})
        for (const auto& [m, n, k] :
             std::vector<std::array<int64_t, 3>>{{64, 128, 24}, {40, 72, 20}, {33, 65, 9}, {5, 7, 3}}) {
            const TileProgram p = product(m, n, k, kBlocked, type);
            if (std::string(type) != "f16") {
                cases.push_back(
                    {fmt::format("{} {}x{}x{}", type, m, n, k), p, {schedule_cases::whole_numbers(p.stages, {})}, 0});
                continue;
            }
            // Sums of halves are no halves: they are not kept in parts.
            std::string whole = kBlocked;
            const TileProgram h = product(m, n, k, changed(whole, "for k by 8", fmt::format("for k by {}", k)), type);
            cases.push_back({"f16", h, {schedule_cases::whole_numbers(h.stages, {})}, 0});
        }
    expect_right(cases);
}

TEST(CudaText, LeavesAllRegistersToABlockThatIsAloneOnItsMultiprocessor) {
    const auto bound = [](const std::string& steps) {
        return generate(product(64, 128, 960, changed(kBlocked, "for k by 8", steps)), h200()).text;
    };
    EXPECT_THAT(bound("for k by 8"), HasSubstr(", 64)("));
    EXPECT_THAT(bound("for k by 240"), HasSubstr(", 64)("));     // 92 of 228 KiB
    EXPECT_THAT(bound("for k by 320"), HasSubstr(", 64, 1)("));  // 123
}

TEST(CudaText, RefusesBlocksThatAreTooLarge) {
    const TileProgram p = product(512, 512, 512, R"TW(parallel m by 256 {
  load 0 access 0 layout "" padding local
  compute 0 order [m n k] padding local
})TW");
    try {
        generate(p, h200());
        FAIL() << "it was generated";
    } catch (const RuntimeError& e) {
        EXPECT_THAT(e.what(), HasSubstr("bytes of shared memory a block, h200 has 232448: smaller tiles would fit"));
    }
}

TEST(CudaText, KeepsInMemoryWhatABlockHasNoRoomFor) {
    // A row of terms is 240 KB: in the block's part of memory, with the same barriers.
    const TileProgram p = schedule_cases::kernel(R"TW(program softmax {
  input x: f32[2, 60000]
  t: f32[2, 60000] = [2, 60000] mul(@0, 2.0) where @0 = x[i0, i1]
  s: f32[2] = [2] sum(i1 < 60000) @0 where @0 = t[i0, i1]
  y: f32[2, 60000] = [2, 60000] sub(@0, @1) where @0 = t[i0, -i1 + 59999], @1 = s[i0]
  output y
})TW",
                                                 R"TW(axes r="2" c="60000" d="60000"
stage 0 over [r c]
stage 1 over [r c]
stage 2 over [r d]
parallel r by 1 {
  compute 0 vector c lanes 4 registers [c=4] padding local
  compute 1 vector c lanes 4 registers [c=4] padding local
  compute 2 vector d lanes 4 registers [d=4] padding local
})TW");
    const KernelText text = generate(p, h200());
    EXPECT_EQ(text.scratch_bytes, 240128);
    EXPECT_LT(text.shared_bytes, 1024);
    EXPECT_THAT(text.text, HasSubstr("m_t = tw::scratch<float>(g_scratch"));
    expect_right({{"softmax", p, {schedule_cases::whole_numbers(p.stages, {})}, 0}});
}

std::vector<LockstepCase> random_cases(uint64_t from, uint64_t to, const RandomScheduleOptions& schedule) {
    std::vector<LockstepCase> out;
    for (uint64_t seed = from; seed < to; ++seed) {
        ScheduledCase c = random_scheduled_case(seed, 1 + static_cast<int>(seed % 3), schedule, {});
        out.push_back({fmt::format("seed {}", seed), c.program, {c.given.inputs}, 1e-3});
    }
    return out;
}

TEST(CudaText, OfRandomSchedulesComputesWhatTheySay) {
    RandomScheduleOptions schedule;
    schedule.most_lanes = 8;
    schedule.most_registers = 16;
    const char* wanted = std::getenv("TILEWRIGHT_RANDOM_PROGRAMS");
    const auto upto = static_cast<uint64_t>(wanted != nullptr ? std::atoll(wanted) : 256);
    for (uint64_t from = 0; from < upto; from += 32) expect_right(random_cases(from, from + 32, schedule));
}

}  // namespace
}  // namespace tilewright::cuda
