#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <cmath>
#include <set>
#include <thread>

#include "cost/probe.h"
#include "cost/sampling.h"
#include "cost/target.h"

namespace tilewright {
namespace {

TEST(Summarize, TakesTheMedianAndTheQuartiles) {
    const Measure m = summarize({5, 1, 4, 2, 3});
    EXPECT_EQ(m.value, 3);
    EXPECT_DOUBLE_EQ(m.spread, (4.0 - 2.0) / 3.0);
    EXPECT_EQ(m.samples, 5);
    EXPECT_EQ(summarize({1, 2}).value, 1.5);
    EXPECT_EQ(summarize({7}), (Measure{7, 0, 1}));
    EXPECT_EQ(summarize({}), Measure{});
}

TEST(Summarize, OneOutlierMovesNothing) {
    const Measure quiet = summarize({10, 10, 10, 10, 10, 10, 10});
    const Measure noisy = summarize({10, 10, 10, 10, 10, 10, 1000});
    EXPECT_EQ(quiet.value, noisy.value);
    EXPECT_EQ(noisy.spread, 0);
}

TEST(Correlation, OfALineIsOneAndOfAConstantZero) {
    EXPECT_DOUBLE_EQ(correlation({1, 2, 4}, {10, 20, 40}), 1);
    EXPECT_DOUBLE_EQ(correlation({1, 2, 4}, {-1, -2, -4}), -1);
    EXPECT_DOUBLE_EQ(correlation({1, 2, 3}, {1, 3, 2}), 0.5);
    EXPECT_EQ(correlation({1, 2, 3}, {5, 5, 5}), 0);
    EXPECT_EQ(correlation({1}, {1}), 0);
    EXPECT_EQ(correlation({}, {}), 0);
}

RC_GTEST_PROP(Summarize, LiesBetweenTheSamples, ()) {
    auto samples = *rc::gen::nonEmpty(rc::gen::container<std::vector<double>>(
        rc::gen::map(rc::gen::inRange(1, 1000000), [](int n) { return n / 1000.0; })));
    const Measure m = summarize(samples);
    std::sort(samples.begin(), samples.end());
    RC_ASSERT(samples.front() <= m.value && m.value <= samples.back());
    RC_ASSERT(m.spread >= 0);
}

TEST(Sample, DropsDisturbedReadings) {
    int turn = 0;
    const Measure m = sample(
        10,
        [&] {
            return ++turn % 2 == 0 ? Reading{100, true} : Reading{1, false};
        },
        [](double s) { return s; });
    EXPECT_EQ(m.value, 1);
    EXPECT_EQ(m.spread, 0);
    EXPECT_EQ(m.samples, 31);
    EXPECT_EQ(turn, 61);
}

TEST(Sample, TakesDisturbedReadingsWhenThereIsNothingElse) {
    const auto start = std::chrono::steady_clock::now();
    const Measure m = sample(
        0.01,
        [] {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            return Reading{2, true};
        },
        [](double s) { return 10 / s; });
    EXPECT_EQ(m.value, 5);
    EXPECT_GE(m.samples, 1);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5)) << "it must give up";
}

TEST(Sample, AFewUndisturbedReadingsCountMoreThanManyDisturbedOnes) {
    int turn = 0;
    const Measure m = sample(
        0.01,
        [&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            return ++turn == 3 ? Reading{1, false} : Reading{100, true};
        },
        [](double s) { return s; });
    EXPECT_EQ(m, (Measure{1, 0, 1}));
}

TEST(TimeOnce, SeesThatTheCpuWasGivenAway) {
    const Reading reading = time_once([] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
    EXPECT_TRUE(reading.disturbed);
    EXPECT_GE(reading.seconds, 0.002);
}

TEST(RoundsFor, FillsTheTime) {
    const auto work = [](int64_t rounds) { std::this_thread::sleep_for(std::chrono::microseconds(100 * rounds)); };
    const int64_t rounds = rounds_for(0.01, work);
    EXPECT_GE(rounds, 5);
    EXPECT_LE(rounds, 110);
    EXPECT_EQ(rounds_for(1e-4, [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }), 1);
}

TEST(RoundsFor, IsNotFooledByOneDisturbance) {
    int calls = 0;
    const int64_t rounds = rounds_for(1e-3, [&](int64_t n) {
        if (++calls == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        probe_cycles(n);
    });
    EXPECT_GT(rounds, 1000) << "a round takes a few nanoseconds";
}

TEST(MeasuredCapacities, FindsTheStepsOfACurve) {
    const std::vector<WorkingSet> curve = {{8, 1.0},   {16, 1.0}, {32, 1.1},  {64, 4.0}, {128, 4.1},
                                           {256, 5.0}, {512, 50}, {1024, 80}, {2048, 80}};
    EXPECT_EQ(measured_capacities(curve, {1.0, 4.0, 80.0}), (std::vector<int64_t>{32, 256}));
}

TEST(MeasuredCapacities, OverlooksASinglePointThatStandsOut) {
    const std::vector<WorkingSet> curve = {{8, 1.0}, {16, 30}, {32, 1.1}, {64, 80}, {128, 80}};
    EXPECT_EQ(measured_capacities(curve, {1.0, 80.0}), (std::vector<int64_t>{32}));
}

TEST(MeasuredCapacities, LevelsThatLookAlikeHaveNone) {
    const std::vector<WorkingSet> curve = {{8, 1.0}, {16, 1.0}, {32, 1.1}, {64, 80}};
    EXPECT_EQ(measured_capacities(curve, {1.0, 1.1, 80.0}), (std::vector<int64_t>{0, 32}));
    EXPECT_EQ(measured_capacities(curve, {0.1, 0.2}), (std::vector<int64_t>{0})) << "no point is that quick";
}

RC_GTEST_PROP(MakeRing, VisitsEveryLineOnce, ()) {
    const int line = *rc::gen::element(8, 64, 128);
    const int64_t lines = *rc::gen::inRange<int64_t>(1, 2000);
    const auto seed = *rc::gen::arbitrary<uint64_t>();
    std::vector<uint64_t> data(static_cast<size_t>(lines * line / 8));
    const void* start = make_ring(data.data(), lines * line, line, seed);
    std::set<const void*> seen;
    const void* node = start;
    do {
        RC_ASSERT(seen.insert(node).second);
        node = *static_cast<const void* const*>(node);
    } while (node != start);
    RC_ASSERT(static_cast<int64_t>(seen.size()) == lines);
}

TEST(ProbeChase, TakesAsManySteps) {
    std::vector<uint64_t> data(1000 * 8);
    const void* start = make_ring(data.data(), 1000 * 64, 64, 7);
    EXPECT_EQ(probe_chase(start, 1000), start);
    EXPECT_NE(probe_chase(start, 8), start);
}

TEST(QuickCalibration, MeasuresEveryRateInSeconds) {
    const auto start = std::chrono::steady_clock::now();
    const Target t = calibrate(CalibrationLength::quick);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_EQ(verify(t), "") << print(t);
    EXPECT_TRUE(t.calibrated && t.quick);
    for (const Measure& m : {t.ghz, t.memory_latency_ns, t.memory_gbps_1, t.memory_gbps_all, t.copy_gbps_1,
                             t.copy_gbps_all, t.fma_gflops_1, t.fma_gflops_all, t.dispatch_us}) {
        EXPECT_TRUE(m.measured()) << print(t);
    }
    EXPECT_EQ(target_key(t), target_key(host_target()));
    EXPECT_LT(seconds, 30) << "about 1 second on an idle machine; the bound is for a busy one";
}

/// What calibrate() promises, on whatever machine the test runs; bounds are wide because tests run on busy machines.
class Calibrated : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        const auto start = std::chrono::steady_clock::now();
        target_ = new Target(
            calibrate(CalibrationLength::full, [](std::string_view, double done) { progress_.push_back(done); }));
        seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    static void TearDownTestSuite() {
        delete target_;
        target_ = nullptr;
    }
    static Target* target_;
    static std::vector<double> progress_;
    static double seconds_;
};
Target* Calibrated::target_ = nullptr;
std::vector<double> Calibrated::progress_;
double Calibrated::seconds_ = 0;

TEST_F(Calibrated, EveryRateIsMeasured) {
    const Target& t = *target_;
    EXPECT_EQ(verify(t), "") << print(t);
    EXPECT_TRUE(t.calibrated);
    for (const Measure& m : {t.ghz, t.memory_latency_ns, t.memory_gbps_1, t.memory_gbps_all, t.copy_gbps_1,
                             t.copy_gbps_all, t.fma_gflops_1, t.fma_gflops_all, t.dispatch_us}) {
        EXPECT_TRUE(m.measured()) << print(t);
    }
    for (const CacheLevel& c : t.caches) {
        EXPECT_TRUE(c.load_gbps.measured()) << print(t);
        EXPECT_TRUE(c.latency_ns.measured()) << print(t);
    }
}

TEST_F(Calibrated, IsTheSameMachine) { EXPECT_EQ(target_key(*target_), target_key(host_target())); }

TEST_F(Calibrated, TellsItsProgress) {
    ASSERT_GE(progress_.size(), 3u);
    EXPECT_EQ(progress_.front(), 0);
    EXPECT_EQ(progress_.back(), 1);
    EXPECT_TRUE(std::is_sorted(progress_.begin(), progress_.end()));
}

// About 5 seconds on an idle machine. The bound is for one that does much else, which cannot be told from a hang
// sooner.
TEST_F(Calibrated, EndsInTime) { EXPECT_LT(seconds_, 120); }

TEST_F(Calibrated, FiguresAreOfThisWorld) {
    const Target& t = *target_;
    EXPECT_GT(t.ghz.value, 0.3) << print(t);
    EXPECT_LT(t.ghz.value, 8) << print(t);
    // Between one multiply-add in ten cycles (a busy machine) and four a cycle.
    const double a_cycle = t.fma_gflops_1.value / t.ghz.value / (2 * t.lanes(DType::F32));
    EXPECT_GT(a_cycle, 0.1) << print(t);
    EXPECT_LT(a_cycle, 6) << print(t);
    EXPECT_GE(t.fma_gflops_all.value, t.fma_gflops_1.value) << print(t);
    EXPECT_GE(t.memory_gbps_all.value, t.memory_gbps_1.value) << print(t);
    EXPECT_LT(t.caches.front().latency_ns.value, t.memory_latency_ns.value) << print(t);
    EXPECT_GT(t.caches.front().load_gbps.value, t.memory_gbps_1.value) << print(t);
}

}  // namespace
}  // namespace tilewright
