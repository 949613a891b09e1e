#include "cost/first_calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/temporary_folder_test.h"

namespace tilewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// With a cache folder of its own, where nothing is kept yet.
class FirstCalibration : public testing::Test {
  protected:
    FirstCalibration() {
        if (const char* value = std::getenv("XDG_CACHE_HOME")) before_ = value;
        setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
    }
    ~FirstCalibration() override {
        before_ ? setenv("XDG_CACHE_HOME", before_->c_str(), 1) : unsetenv("XDG_CACHE_HOME");
        unsetenv("TILEWRIGHT_CALIBRATE");
    }

    static Target measured() {
        Target t = host_target();
        t.fma_gflops_1 = {77, 0.01, 5};
        t.fma_gflops_all = {150, 0.01, 5};
        t.calibrated = t.quick = true;
        return t;
    }
    Target get() {
        return calibrated_target(
            [&] {
                ++measurements_;
                return measured();
            },
            [&](const std::string& s) { notes_.push_back(s); }, [&](const std::string& s) { warnings_.push_back(s); });
    }

    const TemporaryFolder folder_;
    std::atomic<int> measurements_{0};
    std::vector<std::string> notes_, warnings_;

  private:
    std::optional<std::string> before_;
};

TEST_F(FirstCalibration, IsMeasuredKeptAndReportedOnce) {
    EXPECT_EQ(get(), measured());
    ASSERT_THAT(notes_, ElementsAre(HasSubstr("77.0 GFLOP/s")));
    EXPECT_THAT(notes_[0], HasSubstr("kept in " + target_path(host_target())));
    EXPECT_EQ(get(), measured());
    EXPECT_EQ(load_target(), measured());
    EXPECT_EQ(measurements_, 1);
    EXPECT_EQ(notes_.size(), 1u);
    EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(FirstCalibration, DoesNotReplaceALongerOne) {
    Target longer = measured();
    longer.quick = false;
    save_target(longer);
    EXPECT_EQ(get(), longer);
    EXPECT_EQ(measurements_, 0);
}

TEST_F(FirstCalibration, ReplacesADamagedFile) {
    save_target(measured());
    std::ofstream(target_path(host_target())) << "{";
    EXPECT_EQ(get(), measured());
    EXPECT_EQ(measurements_, 1);
    EXPECT_EQ(load_target(), measured());
}

TEST_F(FirstCalibration, OfThreadsThatStartTogetherIsOne) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back([&] { get(); });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(measurements_, 1);
}

TEST_F(FirstCalibration, OfProcessesThatStartTogetherIsOne) {
    const std::string log = folder_.path() + "/measurements";
    std::vector<pid_t> children;
    for (int i = 0; i < 6; ++i) {
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            const auto measure = [&] {
                std::ofstream(log, std::ios::app) << "x";
                usleep(100'000);
                return measured();
            };
            _exit(calibrated_target(measure, {}, {}) == measured() ? 0 : 1);
        }
        children.push_back(child);
    }
    for (pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        EXPECT_EQ(status, 0);
    }
    EXPECT_EQ(std::filesystem::file_size(log), 1u);
}

TEST_F(FirstCalibration, IsKeptByTheProcessWhereNoFolderCanBeUsed) {
    std::ofstream(folder_.path() + "/tilewright") << "a file in place of the folder";
    EXPECT_EQ(get(), measured());
    EXPECT_EQ(get(), measured());
    EXPECT_EQ(measurements_, 1);
    ASSERT_THAT(warnings_, ElementsAre(HasSubstr("the measured rates of this machine are not stored")));
    ASSERT_THAT(notes_, ElementsAre(HasSubstr("not kept")));
}

TEST_F(FirstCalibration, FallsBackToAssumedRatesWithAWarning) {
    const auto fails = []() -> Target { throw RuntimeError("no threads"); };
    std::vector<std::string> warnings;
    EXPECT_EQ(calibrated_target(fails, {}, [&](const std::string& s) { warnings.push_back(s); }), host_target());
    EXPECT_THAT(warnings, ElementsAre(HasSubstr("no threads")));
    EXPECT_EQ(load_target(), std::nullopt);
}

TEST_F(FirstCalibration, IsSwitchedOffByTheEnvironment) {
    setenv("TILEWRIGHT_CALIBRATE", "0", 1);
    EXPECT_FALSE(first_calibration_enabled());
    EXPECT_EQ(calibrated_target({}, {}), host_target());
    EXPECT_EQ(load_target(), std::nullopt);
    unsetenv("TILEWRIGHT_CALIBRATE");
    EXPECT_TRUE(first_calibration_enabled());
}

}  // namespace
}  // namespace tilewright
