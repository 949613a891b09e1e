#include "tune/measure.h"

#include <gtest/gtest.h>

#include <map>

#include "tune/canonical.h"

namespace tilewright {
namespace {

/// Simulated work of a given duration, on a clock that only the work advances.
class FakeMachine {
  public:
    Runnable work(const std::string& name, const std::function<double(int run)>& seconds) {
        return {name, [this, name, seconds] {
                    now_ += seconds(runs_[name]++);
                    order_ += name;
                }};
    }
    Runnable work(const std::string& name, double seconds) {
        return work(name, [=](int) { return seconds; });
    }
    MeasureOptions options() {
        MeasureOptions o;
        o.take = [this](const std::function<void()>& run) {
            const double start = now_;
            run();
            ++readings_;
            return Reading{now_ - start, disturbed_ && disturbed_(readings_)};
        };
        return o;
    }
    int runs(const std::string& name) { return runs_[name]; }
    const std::string& order() const { return order_; }
    double now() const { return now_; }
    void disturb(std::function<bool(int reading)> f) { disturbed_ = std::move(f); }

  private:
    double now_ = 0;
    int readings_ = 0;
    std::map<std::string, int> runs_;
    std::string order_;
    std::function<bool(int)> disturbed_;
};

TEST(Measuring, medians_of_candidates_in_their_order) {
    FakeMachine machine;
    const auto timings = measure({machine.work("a", 2e-3), machine.work("b", 3e-3)}, machine.options());
    ASSERT_EQ(timings.size(), 2u);
    EXPECT_NEAR(timings[0].seconds.value, 2e-3, 1e-9);
    EXPECT_NEAR(timings[1].seconds.value, 3e-3, 1e-9);
    EXPECT_EQ(timings[0].seconds.samples, 31);
    EXPECT_FALSE(timings[0].given_up || timings[1].given_up);
}

TEST(Measuring, takes_turns_with_a_different_first_candidate_per_round) {
    FakeMachine machine;
    MeasureOptions o = machine.options();
    o.enough = 3;
    o.give_up = 0;
    measure({machine.work("a", 5e-4), machine.work("b", 5e-4), machine.work("c", 5e-4)}, o);
    EXPECT_EQ(machine.order(),
              "abc"
              "abc"
              "bca"
              "cab");
}

TEST(Measuring, warm_up_is_no_reading) {
    FakeMachine machine;
    const Timing t = measure(machine.work("a", [](int run) { return run == 0 ? 9e-4 : 1e-4; }), machine.options());
    EXPECT_NEAR(t.seconds.value, 1e-4, 1e-9);
    EXPECT_NEAR(t.seconds.spread, 0, 1e-6);
    EXPECT_EQ(machine.runs("a"), t.seconds.samples + 1);
}

TEST(Measuring, the_first_run_of_long_work_is_a_reading_too) {
    FakeMachine machine;
    MeasureOptions o = machine.options();
    o.enough = 3;
    EXPECT_EQ(measure(machine.work("a", 2e-3), o).seconds.samples, 3);
    EXPECT_EQ(machine.runs("a"), 3);
}

TEST(Measuring, disturbed_readings_do_not_count) {
    FakeMachine machine;
    machine.disturb([](int reading) { return reading % 3 == 0; });
    const Timing t = measure(machine.work("a", 1e-3), machine.options());
    EXPECT_EQ(t.seconds.samples, 31);
    EXPECT_EQ(t.disturbed, 15);
    machine.disturb([](int) { return true; });
    const Timing all = measure(machine.work("a", 1e-3), machine.options());
    EXPECT_NEAR(all.seconds.value, 1e-3, 1e-9) << "better a disturbed reading than none";
    EXPECT_GT(all.disturbed, 0);
}

TEST(Measuring, gives_up_clearly_slower_candidates) {
    FakeMachine machine;
    const auto timings = measure(
        {machine.work("slow", 3e-3), machine.work("fast", 1e-3), machine.work("close", 1.9e-3)}, machine.options());
    EXPECT_TRUE(timings[0].given_up);
    EXPECT_EQ(timings[0].seconds.samples, 3);
    EXPECT_FALSE(timings[1].given_up);
    EXPECT_FALSE(timings[2].given_up);
    EXPECT_EQ(timings[2].seconds.samples, 31);
}

TEST(Measuring, runs_pruned_candidates_once) {
    FakeMachine machine;
    const auto timings = measure({machine.work("fast", 1e-3), machine.work("pruned", 1.0)}, machine.options());
    EXPECT_EQ(machine.runs("pruned"), 1);
    EXPECT_TRUE(timings[1].given_up);
    EXPECT_NEAR(timings[1].seconds.value, 1, 1e-9);
    EXPECT_EQ(timings[1].seconds.samples, 1);
}

/// A candidate that is slow at first is not given up: its fastest reading counts.
TEST(Measuring, does_not_give_up_after_a_slow_start) {
    FakeMachine machine;
    const auto timings =
        measure({machine.work("a", 1e-3), machine.work("b", [](int run) { return run == 2 ? 1e-3 : 5e-3; })},
                machine.options());
    EXPECT_FALSE(timings[1].given_up);
}

TEST(Measuring, keeps_to_the_budget) {
    FakeMachine machine;
    MeasureOptions o = machine.options();
    o.seconds = 0.1;
    EXPECT_EQ(measure(machine.work("a", 10e-3), o).seconds.samples, 11);
    EXPECT_LT(machine.now(), 0.13);
    EXPECT_EQ(measure(machine.work("b", 30e-3), o).seconds.samples, 5) << "a few are waited for";
    EXPECT_EQ(measure(machine.work("c", 1), o).seconds.samples, 1) << "but the budget is limited";
}

TEST(Measuring, short_work_is_repeated_within_a_reading) {
    FakeMachine machine;
    const Timing t = measure(machine.work("a", 1e-6), machine.options());
    EXPECT_NEAR(t.seconds.value, 1e-6, 1e-12);
    EXPECT_EQ(t.seconds.samples, 31);
    EXPECT_NEAR(machine.runs("a"), 31 * 50, 60);
    const Timing nothing = measure(machine.work("b", 0.0), machine.options());
    EXPECT_EQ(nothing.seconds.value, 0);
}

TEST(Measuring, of_no_candidates_is_empty) { EXPECT_TRUE(measure(std::vector<Runnable>{}).empty()); }

TEST(Measuring, a_real_clock_works_too) {
    volatile int sink = 0;
    const auto work = [&](int n) {
        return [&sink, n] {
            for (int i = 0; i < n; ++i) sink = sink + 1;
        };
    };
    MeasureOptions o;
    o.seconds = 0.02;
    const auto timings = measure({{"short", work(1000)}, {"long", work(100000)}}, o);
    EXPECT_GT(timings[0].seconds.value, 0);
    EXPECT_GT(timings[1].seconds.value, timings[0].seconds.value);
    EXPECT_GE(timings[0].seconds.samples, 1);
}

TEST(Warmth, weights_larger_than_the_cache_come_from_memory) {
    const Target target = generic_target(VectorIsa::avx2);
    EXPECT_EQ(warmth_in_model(target, target.last_cache_bytes() / 2), Warmth::warm);
    EXPECT_EQ(warmth_in_model(target, target.last_cache_bytes() + 1), Warmth::cold_weights);
}

TEST(Settings, contain_everything_that_the_time_depends_on) {
    EXPECT_EQ(settings_text(1, Warmth::warm, ""), "threads=1 warmth=warm");
    EXPECT_EQ(settings_text(2, Warmth::cold_weights, "s0=128"), "threads=2 warmth=cold-weights s0=128");
}

}  // namespace
}  // namespace tilewright
