#include "runtime/memory_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/error.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

TEST(MemoryLimit, UsableMemoryIsPositiveAndFinite) {
    EXPECT_GT(usable_memory(), uint64_t{16} << 20);
    EXPECT_LT(usable_memory(), uint64_t{1} << 50);
    EXPECT_NO_THROW(require_memory(usable_memory(), "it"));
    EXPECT_THROW(require_memory(usable_memory() + 1, "it"), RuntimeError);
}

/// A reader that finds only these files.
FileReader files(std::map<std::string, std::string> texts) {
    return [texts = std::move(texts)](const std::string& path) {
        const auto it = texts.find(path);
        return it == texts.end() ? std::nullopt : std::optional(it->second);
    };
}

TEST(MemoryLimit, EveryAncestorGroupLimitsTheProcess) {
    std::map<std::string, std::string> texts = {
        {"/proc/self/cgroup", "0::/app/job\n"},
        {"/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"}};
    EXPECT_EQ(cgroup_memory_limit(files(texts)), std::nullopt);
    texts["/sys/fs/cgroup/app/job/memory.max"] = "max\n";
    EXPECT_EQ(cgroup_memory_limit(files(texts)), std::nullopt);
    texts["/sys/fs/cgroup/app/memory.max"] = "734003200\n";
    EXPECT_EQ(cgroup_memory_limit(files(texts)), 734003200u);
    EXPECT_EQ(usable_memory(files(texts)), 734003200u);
    texts["/sys/fs/cgroup/app/job/memory.max"] = "67108864\n";
    EXPECT_EQ(cgroup_memory_limit(files(texts)), 67108864u);
}

TEST(MemoryLimit, GroupsOfVersion1LimitInTheirOwnHierarchy) {
    const auto limit =
        cgroup_memory_limit(files({{"/proc/self/cgroup", "5:memory:/a/b\n4:cpu,cpuacct:/x\n"},
                                   {"/proc/self/mountinfo",
                                    "33 31 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                                    "34 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"},
                                   {"/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000000000\n"},
                                   {"/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"},
                                   {"/sys/fs/cgroup/cpu/x/memory.limit_in_bytes", "5\n"}}));
    EXPECT_EQ(limit, 1000000000u);
}

TEST(MemoryLimit, AvailableMemoryIsReadFromTheSystem) {
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

TEST(MemoryBudget, CountsCurrentBuffers) {
    MemoryBudget budget(1000);
    EXPECT_EQ(error_of(budget, 0, 600, false), "");
    EXPECT_EQ(error_of(budget, 0, 300, false), "");
    EXPECT_EQ(error_of(budget, 300, 400, false), "");
    EXPECT_EQ(budget.used(), 1000u);
    EXPECT_EQ(error_of(budget, 600, 100, false), "");
    EXPECT_EQ(budget.used(), 500u);
}

TEST(MemoryBudget, ErrorsNameTheNeedAndTheLimit) {
    MemoryBudget budget(1000);
    budget.resize(0, 600, false, "one");
    EXPECT_EQ(error_of(budget, 0, 401, false),
              "not enough memory: a buffer needs 1001 bytes, and this process may use 1000");
    EXPECT_EQ(budget.used(), 600u);
    EXPECT_THAT(error_of(budget, 0, UINT64_MAX, false), HasSubstr("more than 18446744073709551615 bytes"));
}

TEST(MemoryBudget, ACopiedBufferNeedsRoomForBoth) {
    MemoryBudget budget(1000);
    budget.resize(0, 400, false, "one");
    EXPECT_NE(error_of(budget, 400, 700, true), "");
    EXPECT_EQ(error_of(budget, 400, 700, false), "");
}

TEST(MemoryBudget, StorageGrowsGeometricallyWithinTheLimit) {
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
