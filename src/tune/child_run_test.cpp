#include "tune/child_run.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "base/clock.h"

namespace tilewright {
namespace {

void hang() {
    volatile bool forever = true;
    while (forever) {
    }
}

TEST(ChildRun, FinishesTerminatingWorks) {
    int here = 0;
    const auto faults = run_in_child({[&] { here = 1; }, [&] { here = 2; }}, 10);
    EXPECT_EQ(faults, (std::vector<std::string>{"", ""}));
    EXPECT_EQ(here, 0) << "memory is the child's own";
}

TEST(ChildRun, StopsEndlessWorksAndContinues) {
    const double start = now_ms();
    const auto faults = run_in_child({[] {}, hang, [] {}, hang}, 0.2);
    EXPECT_EQ(faults, (std::vector<std::string>{"", "stopped after 0.2 s", "", "stopped after 0.2 s"}));
    EXPECT_LT(now_ms() - start, 20e3);
}

TEST(ChildRun, ReportsCrashes) {
    const auto faults =
        run_in_child({[] { ::raise(SIGKILL); }, [] { ::_exit(3); }, [] { throw std::exception(); }, [] {}}, 10);
    EXPECT_EQ(faults, (std::vector<std::string>{"ended by signal 9", "its process ended with status 3",
                                                "its process ended with status 1", ""}));
}

}  // namespace
}  // namespace tilewright
