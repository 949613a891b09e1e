// The allocation of a budget: which kernel gets the next round, and when there are no more.

#include "tune/allocation.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/option_error.h"

namespace tilewright {
namespace {

KernelProgress kernel(double calls, double best, double limit) {
    KernelProgress k;
    k.calls = calls;
    k.best = best;
    k.limit = limit;
    return k;
}

/// The rounds that each kernel gets when `seconds` gives the best time of a kernel's n-th round.
template <class Seconds>
std::vector<int> spend(std::vector<KernelProgress> all, int rounds, const Seconds& seconds) {
    for (int r = 0; r < rounds; ++r) {
        const auto k = next_kernel(all);
        if (!k) break;
        all[*k].add_round(seconds(*k, all[*k].rounds));
    }
    std::vector<int> out;
    for (const KernelProgress& k : all) out.push_back(k.rounds);
    return out;
}

KernelProgress any_kernel() {
    KernelProgress k = kernel(*rc::gen::inRange(0, 100), *rc::gen::inRange(1, 1000), 0);
    k.limit = k.best * *rc::gen::inRange(0, 101) / 100;
    k.rounds = *rc::gen::inRange(0, 50);
    k.idle = *rc::gen::inRange(0, std::min(k.rounds, 6) + 1);
    k.exhausted = *rc::gen::inRange(0, 5) == 0;
    return k;
}

TEST(Allocation, the_first_round_is_for_the_kernel_with_the_most_time_above_its_limit) {
    EXPECT_EQ(next_kernel({kernel(1, 100, 20), kernel(1, 100, 80), kernel(1, 60, 0)}), 0u);
    EXPECT_EQ(next_kernel({kernel(1, 100, 20), kernel(12, 10, 2)}), 1u) << "calls count";
}

TEST(Allocation, an_estimate_at_the_limit_is_measured_once) {
    KernelProgress k = kernel(1, 100, 100);
    EXPECT_GT(expected_gain(k), 0);
    k.add_round(101);
    EXPECT_EQ(expected_gain(k), 0);
}

TEST(Allocation, rounds_without_an_improvement_end_a_kernel) {
    KernelProgress k = kernel(1, 100, 10);
    k.add_round(90);
    double before = expected_gain(k);
    int idle = 0;
    for (; expected_gain(k) > 0; ++idle) {
        k.add_round(95);
        EXPECT_LT(expected_gain(k), before);
        before = expected_gain(k);
    }
    EXPECT_EQ(idle, 4);
    EXPECT_EQ(k.best, 90);
    EXPECT_EQ(k.rounds, 5);
}

TEST(Allocation, the_first_measured_time_replaces_the_estimate) {
    KernelProgress k = kernel(1, 100, 10);
    k.add_round(150);
    EXPECT_EQ(k.best, 150);
    EXPECT_EQ(k.idle, 0);
    k.add_round(std::nullopt);
    EXPECT_EQ(k.idle, 1);
    k.add_round(140);
    EXPECT_EQ(k.idle, 0);
}

TEST(Allocation, nothing_is_given_to_kernels_that_cannot_gain) {
    KernelProgress done = kernel(1, 100, 10);
    done.exhausted = true;
    EXPECT_EQ(next_kernel({done, kernel(0, 100, 10)}), std::nullopt);
    EXPECT_EQ(next_kernel({}), std::nullopt);
}

TEST(Allocation, a_kernel_with_a_small_share_waits_but_gets_its_rounds) {
    const auto improves = [](size_t, int round) { return 100.0 / (1 + 0.01 * round); };
    const std::vector<int> few = spend({kernel(90, 100, 10), kernel(10, 100, 10)}, 5, improves);
    EXPECT_EQ(few, (std::vector<int>{5, 0}));
    const std::vector<int> many = spend({kernel(90, 100, 10), kernel(10, 100, 10)}, 50, improves);
    EXPECT_GT(many[0], 4 * many[1]);
    EXPECT_GT(many[1], 2);
}

RC_GTEST_PROP(Allocation, the_kernel_of_the_next_round_has_the_largest_gain, ()) {
    const auto n = *rc::gen::inRange<size_t>(0, 12);
    std::vector<KernelProgress> all;
    for (size_t i = 0; i < n; ++i) all.push_back(any_kernel());
    const auto next = next_kernel(all);
    for (const KernelProgress& k : all) {
        RC_ASSERT(expected_gain(k) >= 0);
        RC_ASSERT(expected_gain(k) <= (next ? expected_gain(all[*next]) : 0));
    }
    if (next) RC_ASSERT(expected_gain(all[*next]) > 0);
}

RC_GTEST_PROP(Allocation, more_calls_or_a_lower_limit_never_lower_the_gain, ()) {
    const KernelProgress k = any_kernel();
    KernelProgress more = k;
    more.calls += *rc::gen::inRange(0, 10);
    more.limit *= 0.01 * *rc::gen::inRange(0, 101);
    RC_ASSERT(expected_gain(more) >= expected_gain(k));
    KernelProgress later = k;
    later.rounds += 1;
    RC_ASSERT(expected_gain(later) <= expected_gain(k) || k.rounds == 0);
}

RC_GTEST_PROP(Allocation, it_ends_when_times_end_to_improve, ()) {
    std::vector<KernelProgress> all;
    const auto n = *rc::gen::inRange<size_t>(1, 8);
    for (size_t i = 0; i < n; ++i) all.push_back(kernel(*rc::gen::inRange(1, 50), *rc::gen::inRange(1, 1000), 0));
    const int improving = *rc::gen::inRange(1, 20);
    const std::vector<int> rounds =
        spend(all, 1000, [&](size_t k, int round) { return all[k].best / (1 + std::min(round, improving)); });
    for (const int r : rounds) RC_ASSERT(r <= improving + 6);
    for (const int r : rounds) RC_ASSERT(r >= 1);
}

TEST(TuningBudget, is_a_number_of_candidates_or_a_time) {
    EXPECT_EQ(parse_tuning_budget("1000").candidates, 1000u);
    EXPECT_FALSE(parse_tuning_budget("1000").seconds);
    EXPECT_EQ(parse_tuning_budget("60s").seconds, 60);
    EXPECT_EQ(parse_tuning_budget("0.5s").seconds, 0.5);
    EXPECT_EQ(parse_tuning_budget("10m").seconds, 600);
    EXPECT_EQ(parse_tuning_budget("1.5h").seconds, 5400);
    EXPECT_FALSE(parse_tuning_budget("60s").candidates);
}

TEST(TuningBudget, refuses_other_texts) {
    for (const char* text : {"", "0", "-5", "-5s", "0s", "1.5", "s", "10x", "10 s", "10ss", "nan", "infs", "1e5",
                             "99999999999999", "10s20", "ten"})
        EXPECT_THROW(parse_tuning_budget(text), OptionError) << text;
}

}  // namespace
}  // namespace tilewright
