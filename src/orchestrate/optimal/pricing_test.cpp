// The assumed lower bounds of unmeasured kernels.

#include "orchestrate/optimal/pricing.h"

#include <gtest/gtest.h>

namespace tilewright::optimal {
namespace {

TEST(LowRatio, is_the_lower_quartile_of_the_kind) {
    EXPECT_EQ(low_ratio({0.9, 0.5, 1.2, 1.0}, {0.1}), 0.9);
    EXPECT_EQ(low_ratio({}, {0.9, 0.5, 1.2, 1.0}), 0.9) << "of all, where none of the kind was measured";
    EXPECT_EQ(low_ratio({}, {}), 1);
}

/// Four kernels that take five times their estimate do not raise the bound of other kernels above the estimate.
TEST(LowRatio, is_at_most_one_where_few_kernels_were_measured) {
    EXPECT_EQ(low_ratio({5, 5.5, 6, 6.4}, {1, 1, 5, 5.5, 6, 6.4}), 1);
    EXPECT_EQ(low_ratio(std::vector<double>(kTellingKernels - 1, 3), {}), 1);
    EXPECT_EQ(low_ratio({}, std::vector<double>(100, 3)), 1) << "other kinds show nothing of this one";
}

TEST(LowRatio, is_above_one_where_many_kernels_show_it) {
    std::vector<double> slow(kTellingKernels, 3);
    slow.back() = 1.5;
    EXPECT_EQ(low_ratio(slow, {}), 1.5);
    slow.back() = 0.9;
    EXPECT_EQ(low_ratio(slow, {}), 1) << "one of them took less than its estimate";
}

}  // namespace
}  // namespace tilewright::optimal
