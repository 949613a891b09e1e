// How many tile programs all of these tests together have executed without a GPU.

#include <gtest/gtest.h>

#include <iostream>

#include "backend/cuda/lockstep_cases_test.h"

namespace tilewright::cuda {
namespace {

class Count : public testing::Environment {
  public:
    void TearDown() override {
        const testing::UnitTest& run = *testing::UnitTest::GetInstance();
        const size_t count = test::executed().size();
        std::cout << count << " tile programs were executed in lockstep\n";
        // Fewer where the conformance cases are not at hand, or some tests alone were asked for.
        const bool all = run.test_to_run_count() == run.total_test_count();
        if (all && std::filesystem::exists(std::filesystem::path(TW_SOURCE_DIR) / "../shared/conformance/core")) {
            EXPECT_GE(count, size_t{300});
        }
    }
};

const testing::Environment* const kCount = testing::AddGlobalTestEnvironment(new Count);

}  // namespace
}  // namespace tilewright::cuda
