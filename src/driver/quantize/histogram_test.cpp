#include "driver/quantize/histogram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace tilewright::quantize {
namespace {

uint64_t total(const Histogram& h) { return std::accumulate(h.bins().begin(), h.bins().end(), uint64_t{0}); }

TEST(Histogram, CountsElementsAndLeavesOutWhatIsNotFinite) {
    Histogram h;
    const std::vector<float> elements = {0.F, 1.F, -1.5F, std::numeric_limits<float>::infinity(), NAN, 0.F};
    h.add(elements);
    EXPECT_EQ(h.count(), 4u);
    EXPECT_EQ(h.zeros(), 2u);
    EXPECT_EQ(h.not_finite(), 2u);
    EXPECT_EQ(h.least(), -1.5);
    EXPECT_EQ(h.most(), 1);
    EXPECT_EQ(total(h), 2u);
}

TEST(Histogram, LargerElementsDoubleItsLimitAndKeepEveryCount) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> number(-1, 1);
    Histogram grown, at_once;
    at_once.add(std::vector<float>{63.F});
    for (const float scale : {0.01F, 0.5F, 8.F, 60.F}) {
        std::vector<float> elements(1000);
        for (float& x : elements) x = scale * number(random);
        grown.add(elements);
        at_once.add(elements);
    }
    grown.add(std::vector<float>{63.F});
    EXPECT_EQ(grown.limit(), 64);
    EXPECT_EQ(total(grown), 4001u);
    EXPECT_TRUE(std::equal(grown.bins().begin(), grown.bins().end(), at_once.bins().begin()));
}

TEST(Histogram, TakesTheLargestAndTheSmallestNumbers) {
    Histogram h;
    h.add(std::vector<float>{std::numeric_limits<float>::denorm_min(), 2.F, -2.F});
    h.add(std::vector<float>{std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest()});
    EXPECT_EQ(total(h), 5u);
    EXPECT_EQ(h.most(), static_cast<double>(std::numeric_limits<float>::max()));
}

TEST(Ranges, OfAllElementsContainZero) {
    Histogram h;
    h.add(std::vector<float>{2.F, 3.F});
    const Range r = range_of(h, Calibration::MinMax, 100);
    EXPECT_EQ(r.least, 0);
    EXPECT_EQ(r.most, 3);
}

TEST(Ranges, OfNoElementsAreEmpty) {
    for (const Calibration c : {Calibration::MinMax, Calibration::Percentile, Calibration::Entropy}) {
        Histogram none, zeros;
        zeros.add(std::vector<float>(100));
        for (const Histogram* h : {&none, &zeros}) {
            EXPECT_EQ(range_of(*h, c, 99).least, 0);
            EXPECT_EQ(range_of(*h, c, 99).most, 0);
        }
    }
}

TEST(Ranges, ByPercentileLeaveOutAShareAtBothEnds) {
    std::vector<float> elements;
    for (int k = -5000; k < 5000; ++k) elements.push_back(static_cast<float>(k) / 5000);
    Histogram h;
    h.add(elements);
    const Range r = range_of(h, Calibration::Percentile, 90);
    EXPECT_NEAR(r.least, -0.9, 2 * h.width());
    EXPECT_NEAR(r.most, 0.9, 2 * h.width());
    const Range all = range_of(h, Calibration::Percentile, 100);
    EXPECT_EQ(all.least, h.least());
    EXPECT_EQ(all.most, h.most());
}

TEST(Ranges, ByPercentileLeaveOutTheLargestOfOneSign) {
    std::vector<float> elements;
    for (int k = 1; k <= 10000; ++k) elements.push_back(static_cast<float>(k) / 10000);
    Histogram h;
    h.add(elements);
    const Range r = range_of(h, Calibration::Percentile, 99);
    EXPECT_EQ(r.least, 0);
    EXPECT_NEAR(r.most, 0.99, 2 * h.width());
}

/// A uniform distribution loses by clipping; one with a few far elements loses by wide levels.
TEST(Ranges, ByEntropyKeepUniformElementsAndClipFarOnes) {
    std::mt19937 random(2);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> even(200000), far(200000);
    for (float& x : even) x = uniform(random);
    for (float& x : far) x = normal(random);
    far[0] = 60.F;
    Histogram h_even, h_far;
    h_even.add(even);
    h_far.add(far);
    EXPECT_GT(range_of(h_even, Calibration::Entropy, 100).most, 0.98);
    const Range r = range_of(h_far, Calibration::Entropy, 100);
    EXPECT_LT(r.most, 12);
    EXPECT_GT(r.most, 2.5);
}

TEST(Ranges, ByEntropyIgnoreZeros) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> elements(100000);
    for (float& x : elements) x = std::fabs(normal(random));
    Histogram without, with;
    without.add(elements);
    elements.resize(1000000);
    with.add(elements);
    EXPECT_EQ(range_of(with, Calibration::Entropy, 100).most, range_of(without, Calibration::Entropy, 100).most);
}

}  // namespace
}  // namespace tilewright::quantize
