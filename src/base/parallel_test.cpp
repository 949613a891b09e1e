#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace tilewright {
namespace {

TEST(ParallelFor, CallsEachNumberOnce) {
    for (const size_t n : {size_t{0}, size_t{1}, size_t{2}, size_t{1000}}) {
        std::vector<std::atomic<int>> calls(n);
        parallel_for(n, [&](size_t k) { ++calls.at(k); });
        for (const auto& c : calls) EXPECT_EQ(c, 1);
    }
}

TEST(ParallelFor, ThrowsWhatACallThrows) {
    std::atomic<int> calls{0};
    EXPECT_THROW(parallel_for(1000,
                              [&](size_t k) {
                                  ++calls;
                                  if (k == 3) throw std::runtime_error("three");
                              }),
                 std::runtime_error);
    EXPECT_GE(calls, 1);
}

}  // namespace
}  // namespace tilewright
