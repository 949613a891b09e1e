#include "runtime/memory_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

TEST(MemoryLimit, TheMachineHasSomeMemoryAndAnEnd) {
    EXPECT_GT(usable_memory(), uint64_t{16} << 20);
    EXPECT_LT(usable_memory(), uint64_t{1} << 50);
    EXPECT_NO_THROW(require_memory(usable_memory(), "it"));
    EXPECT_THROW(require_memory(usable_memory() + 1, "it"), RuntimeError);
}

TEST(MemoryLimit, WhatIsAvailableComesFromTheSystem) {
    const auto meminfo = [](const std::string& text) {
        return available_memory(
            [&](const std::string& path) { return path == "/proc/meminfo" ? std::optional(text) : std::nullopt; });
    };
    EXPECT_EQ(meminfo("MemTotal:  9 kB\nMemAvailable:     7 kB\n"), uint64_t{7} * 1024);
    EXPECT_EQ(meminfo("MemTotal: 9 kB\n"), UINT64_MAX);
    EXPECT_EQ(meminfo("MemAvailable:   "), UINT64_MAX);
    EXPECT_GT(available_memory(), 0u);
}

std::string error_of(MemoryBudget& budget, uint64_t old_bytes, uint64_t new_bytes, bool copied) {
    try {
        budget.resize(old_bytes, new_bytes, copied, "a buffer");
    } catch (const RuntimeError& e) {
        return e.what();
    }
    return "";
}

TEST(MemoryBudget, CountsWhatEachBufferTakesNow) {
    MemoryBudget budget(1000);
    EXPECT_EQ(error_of(budget, 0, 600, false), "");
    EXPECT_EQ(error_of(budget, 0, 300, false), "");
    EXPECT_EQ(error_of(budget, 300, 400, false), "");
    EXPECT_EQ(budget.used(), 1000u);
    EXPECT_EQ(error_of(budget, 600, 100, false), "");
    EXPECT_EQ(budget.used(), 500u);
}

TEST(MemoryBudget, SaysHowMuchIsNeededAndHowMuchThereIs) {
    MemoryBudget budget(1000);
    budget.resize(0, 600, false, "one");
    EXPECT_EQ(error_of(budget, 0, 401, false),
              "not enough memory: a buffer needs 1001 bytes, and this process may use 1000");
    EXPECT_EQ(budget.used(), 600u);
    EXPECT_THAT(error_of(budget, 0, UINT64_MAX, false), HasSubstr("more than 18446744073709551615 bytes"));
}

TEST(MemoryBudget, ABufferThatIsCopiedNeedsRoomForBoth) {
    MemoryBudget budget(1000);
    budget.resize(0, 400, false, "one");
    EXPECT_NE(error_of(budget, 400, 700, true), "");
    EXPECT_EQ(error_of(budget, 400, 700, false), "");
}

TEST(MemoryBudget, StorageGrowsAmplyAndAtTheEndByWhatItMust) {
    MemoryBudget budget(1000);
    std::vector<std::byte> storage;
    const auto what = [] { return "storage"; };
    budget.grow(storage, 100, what);
    EXPECT_EQ(storage.size(), 100u);
    budget.grow(storage, 101, what);
    EXPECT_EQ(storage.size(), 151u);
    budget.grow(storage, 151, what);
    EXPECT_EQ(storage.size(), 151u);
    budget.grow(storage, 800, what);
    EXPECT_EQ(storage.size(), 800u);
    EXPECT_EQ(budget.used(), 800u);
    EXPECT_THROW(budget.grow(storage, 801, what), RuntimeError);
    EXPECT_EQ(storage.size(), 800u);
}

}  // namespace
}  // namespace tilewright
