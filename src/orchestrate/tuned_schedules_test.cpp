// Tuned schedules: their text, and what plans make of them.

#include "orchestrate/tuned_schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "cost/given_test.h"
#include "orchestrate/gemm_chains.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/schedules.h"
#include "orchestrate/scheduling_test.h"
#include "orchestrate/split_k.h"
#include "schedule/candidate_search.h"

namespace tilewright {
namespace {

using namespace test;

/// Two products, which are a chain.
Program two_products() {
    return parse_program(R"(program chain {
  input a: f32[256, 64]
  input b: f32[64, 256]
  input d: f32[256, 64]
  c: f32[256, 256] = [256, 256] sum(i2 < 64) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  e: f32[256, 64] = [256, 64] sum(i2 < 256) mul(@0, @1) where @0 = c[i0, i2], @1 = d[i2, i1]
  output e
})");
}

std::vector<KernelGroup> apart() { return {{{PrimitiveId(0)}, {{}}}, {{PrimitiveId(1)}, {{}}}}; }

KernelBody body_of(const Program& p, size_t k) { return extract(p, apart()[k]); }

/// Another legal schedule than the default one.
TileProgram another(const KernelBody& body, Scheduling how) {
    how.kind = SchedulerKind::Search;
    const auto search = search_states(body.stages, body.row_axes, how);
    std::vector<TileProgram> all = search->next(4);
    return std::move(all.back());
}

/// All kernels that are made when the groups become chains, with the time that `seconds` gives them.
template <class Seconds>
std::shared_ptr<TunedSchedules> all_tuned(const Program& p, const Scheduling& how, const Seconds& seconds) {
    auto tuned = std::make_shared<TunedSchedules>();
    Schedules schedules(how, nullptr, nullptr, [&](const Schedules::Made& m) {
        tuned->set(m.key, {m.schedule.program, seconds(m), "default"});
    });
    fuse_gemm_chains(p, apart(), schedules);
    return tuned;
}

TEST(TunedSchedules, are_the_same_after_a_round_trip) {
    const Program p = two_products();
    const Scheduling how = avx2_scheduling(SchedulerKind::Auto);
    const auto tuned = all_tuned(p, how, [](const Schedules::Made& m) { return m.chain ? 1.25e-5 : 0.1; });
    ASSERT_GE(tuned->size(), 3u);
    const TunedSchedules again = given(TunedSchedules::parse(tuned->print()));
    EXPECT_EQ(again.print(), tuned->print());
    EXPECT_EQ(again.size(), tuned->size());
    EXPECT_EQ(given(TunedSchedules::parse("")).size(), 0u);
}

TEST(TunedSchedules, a_damaged_text_is_refused_or_legal) {
    const auto tuned =
        all_tuned(two_products(), avx2_scheduling(SchedulerKind::Auto), [](const Schedules::Made&) { return 1.0; });
    const std::string text = tuned->print();
    std::mt19937 rng(3);
    for (int i = 0; i < 300; ++i) {
        std::string damaged = text;
        if (i % 2 == 0)
            damaged.resize(rng() % text.size());
        else
            damaged[rng() % text.size()] = static_cast<char>(rng() % 128);
        const auto parsed = TunedSchedules::parse(damaged);
        if (!parsed || i % 2 == 0) continue;
        EXPECT_TRUE(TunedSchedules::parse(parsed->print()).has_value());
    }
    for (const char* none : {"x", "1", "1 2 3 x\n", "5 5 -1 x\nabcdefghij", "5 99999999999 1 x\nabcdef"})
        EXPECT_FALSE(TunedSchedules::parse(none)) << none;
}

TEST(TunedSchedules, replace_the_schedules_of_their_kernels_alone) {
    const Program p = two_products();
    const Scheduling how = avx2_scheduling(SchedulerKind::Auto);
    std::string key;
    Schedules without(how, nullptr, nullptr, [&](const Schedules::Made& m) { key = m.key; });
    const std::string usual = print(without.kernel(body_of(p, 0)).program);
    const TileProgram other = another(body_of(p, 0), how);
    ASSERT_NE(print(other), usual);
    auto tuned = std::make_shared<TunedSchedules>();
    tuned->set(key, {other, 1e-5, "construction"});
    Schedules with(how, nullptr, tuned);
    EXPECT_EQ(print(with.kernel(body_of(p, 0)).program), print(other));
    EXPECT_EQ(with.kernel(body_of(p, 0)).measured, 1e-5);
    EXPECT_EQ(with.measured(with.kernel(body_of(p, 0))), 1e-5);
    EXPECT_EQ(print(with.kernel(body_of(p, 1)).program), print(without.kernel(body_of(p, 1)).program));
    EXPECT_FALSE(with.kernel(body_of(p, 1)).measured);
}

TEST(TunedSchedules, their_times_decide_about_chains) {
    const Program p = two_products();
    const Scheduling how = avx2_scheduling(SchedulerKind::Auto);
    for (const bool chain : {false, true}) {
        const auto tuned = all_tuned(p, how, [&](const Schedules::Made& m) { return m.chain == chain ? 1e-5 : 2e-3; });
        Schedules schedules(how, nullptr, tuned);
        EXPECT_EQ(fuse_gemm_chains(p, apart(), schedules).size(), chain ? 1u : 2u);
    }
}

TEST(TunedSchedules, without_all_times_estimates_decide_about_chains) {
    const Program p = two_products();
    const Scheduling how = avx2_scheduling(SchedulerKind::Auto);
    Schedules plain(how);
    const size_t usual = fuse_gemm_chains(p, apart(), plain).size();
    for (const double seconds : {1e-9, 1.0}) {
        auto tuned = std::make_shared<TunedSchedules>();
        Schedules watched(how, nullptr, nullptr, [&](const Schedules::Made& m) {
            if (m.chain) tuned->set(m.key, {m.schedule.program, seconds, "chain"});
        });
        fuse_gemm_chains(p, apart(), watched);
        ASSERT_GE(tuned->size(), 1u);
        Schedules schedules(how, nullptr, tuned);
        EXPECT_EQ(fuse_gemm_chains(p, apart(), schedules).size(), usual) << seconds;
    }
}

/// A tuned schedule may have another estimate, though it is faster.
TEST(TunedSchedules, estimates_are_those_without_tuning) {
    const Program p = two_products();
    const Scheduling how = avx2_scheduling(SchedulerKind::Auto);
    std::string key;
    Schedules without(how, nullptr, nullptr, [&](const Schedules::Made& m) { key = m.key; });
    const double usual = without.kernel(body_of(p, 0)).seconds;
    const TileProgram other = another(body_of(p, 0), how);
    ASSERT_NE(kernel_costs(how)->estimate(other), usual);
    auto tuned = std::make_shared<TunedSchedules>();
    tuned->set(key, {other, 1e-5, "construction"});
    EXPECT_EQ(Schedules(how, nullptr, tuned).kernel(body_of(p, 0)).seconds, usual);
}

TEST(TunedSchedules, their_times_decide_about_split_sums) {
    const Program p = parse_program(R"(program dot {
  input a: f32[2, 65536]
  input b: f32[65536, 16]
  c: f32[2, 16] = [2, 16] sum(i2 < 65536) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  output c
})");
    const Scheduling how = avx2_scheduling(SchedulerKind::Auto, 8);
    const KernelBody body = extract(p, {{PrimitiveId(0)}, {{}}});
    for (const bool split : {false, true}) {
        auto tuned = std::make_shared<TunedSchedules>();
        std::string whole;
        Schedules watched(how, nullptr, nullptr, [&](const Schedules::Made& m) {
            if (whole.empty()) whole = m.key;
            tuned->set(m.key, {m.schedule.program, (m.key == whole) == split ? 1.0 : 1e-5, "default"});
        });
        split_kernel(body, watched.kernel(body), watched);
        ASSERT_GE(tuned->size(), 3u) << "the kernel and two parts";
        Schedules schedules(how, nullptr, tuned);
        EXPECT_EQ(split_kernel(body, schedules.kernel(body), schedules).has_value(), split);
    }
}

TEST(Schedules, report_what_is_made_once_and_every_call_of_a_plan) {
    const Program p = two_products();
    std::vector<std::string> made, planned;
    Schedules schedules(avx2_scheduling(SchedulerKind::Auto), nullptr, nullptr, [&](const Schedules::Made& m) {
        (m.planned ? planned : made).push_back(m.key);
        EXPECT_FALSE(m.chain);
    });
    schedules.kernel(body_of(p, 0));
    schedules.planned(body_of(p, 0), false);
    schedules.planned(body_of(p, 1), false);
    schedules.planned(body_of(p, 1), false);
    ASSERT_EQ(made.size(), 2u);
    EXPECT_NE(made[0], made[1]);
    EXPECT_EQ(planned, (std::vector<std::string>{made[0], made[1], made[1]}));
}

TEST(KernelBody, knows_which_inputs_are_constants) {
    Program p = two_products();
    p.constants.emplace(p.inputs[1], Tensor(DType::F32, {64, 256}));
    p.inputs.erase(p.inputs.begin() + 1);
    EXPECT_EQ(body_of(p, 0).weights, (std::vector<bool>{false, true}));
    EXPECT_EQ(body_of(p, 1).weights, (std::vector<bool>{false, false}));
}

}  // namespace
}  // namespace tilewright
