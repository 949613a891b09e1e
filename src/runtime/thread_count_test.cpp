#include "runtime/thread_count.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <map>
#include <thread>

#include "base/error.h"

namespace tilewright {
namespace {

using Files = std::map<std::string, std::string>;

FileReader machine(Files files) {
    return [files = std::move(files)](const std::string& path) -> std::optional<std::string> {
        const auto found = files.find(path);
        return found == files.end() ? std::nullopt : std::optional<std::string>(found->second);
    };
}

constexpr const char* kVersion2Mount =
    "24 18 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kVersion1Mounts =
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpuset rw,relatime shared:9 - cgroup cgroup rw,cpuset\n"
    "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:10 - cgroup cgroup rw,cpu,cpuacct\n";

TEST(CgroupQuota, Version2InAContainerOfItsOwnNamespace) {
    const auto quota = cgroup_cpu_quota(machine({{"/proc/self/cgroup", "0::/\n"},
                                                 {"/proc/self/mountinfo", kVersion2Mount},
                                                 {"/sys/fs/cgroup/cpu.max", "250000 100000\n"}}));
    EXPECT_EQ(quota, 2.5);
}

TEST(CgroupQuota, Version2TakesTheTightestAncestor) {
    const Files files{{"/proc/self/cgroup", "0::/a.slice/b.scope\n"},
                      {"/proc/self/mountinfo", kVersion2Mount},
                      {"/sys/fs/cgroup/a.slice/b.scope/cpu.max", "800000 100000\n"},
                      {"/sys/fs/cgroup/a.slice/cpu.max", "300000 100000\n"}};
    EXPECT_EQ(cgroup_cpu_quota(machine(files)), 3.0);
}

TEST(CgroupQuota, Version2WithoutALimit) {
    const auto quota = cgroup_cpu_quota(machine({{"/proc/self/cgroup", "0::/a\n"},
                                                 {"/proc/self/mountinfo", kVersion2Mount},
                                                 {"/sys/fs/cgroup/a/cpu.max", "max 100000\n"}}));
    EXPECT_EQ(quota, std::nullopt);
}

TEST(CgroupQuota, Version1) {
    const Files files{{"/proc/self/cgroup", "5:cpuset:/job\n4:cpu,cpuacct:/job\n1:name=systemd:/job\n"},
                      {"/proc/self/mountinfo", kVersion1Mounts},
                      {"/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "150000\n"},
                      {"/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "50000\n"},
                      {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
                      {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"}};
    EXPECT_EQ(cgroup_cpu_quota(machine(files)), 3.0);
}

TEST(CgroupQuota, Version1ContainerSeesItsGroupAsTheRootOfTheMount) {
    const Files files{
        {"/proc/self/cgroup", "4:cpu,cpuacct:/docker/77\n"},
        {"/proc/self/mountinfo",
         "33 31 0:30 /docker/77 /sys/fs/cgroup/cpu,cpuacct ro,relatime master:10 - cgroup cgroup rw,cpu,cpuacct\n"},
        {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n"},
        {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"}};
    EXPECT_EQ(cgroup_cpu_quota(machine(files)), 2.0);
}

TEST(CgroupQuota, BothVersionsMounted) {
    const Files files{{"/proc/self/cgroup", "1:cpu:/\n0::/\n"},
                      {"/proc/self/mountinfo",
                       "33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                       "34 31 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"},
                      {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000"},
                      {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"}};
    EXPECT_EQ(cgroup_cpu_quota(machine(files)), 4.0);
}

TEST(CgroupQuota, AGroupOutsideTheMountReadsTheMountPoint) {
    const Files files{{"/proc/self/cgroup", "0::/../other\n"},
                      {"/proc/self/mountinfo", kVersion2Mount},
                      {"/sys/fs/cgroup/cpu.max", "100000 100000"}};
    EXPECT_EQ(cgroup_cpu_quota(machine(files)), 1.0);
}

TEST(CgroupQuota, MalformedEntriesDoNotLimit) {
    EXPECT_EQ(cgroup_cpu_quota(machine({})), std::nullopt);
    EXPECT_EQ(cgroup_cpu_quota(machine({{"/proc/self/cgroup", "nonsense\n"}, {"/proc/self/mountinfo", "1 2 - x\n"}})),
              std::nullopt);
    for (const char* text : {"", "lots", "-5 100000", "100000 0", "1e5 100000"})
        EXPECT_EQ(cgroup_cpu_quota(machine({{"/proc/self/cgroup", "0::/\n"},
                                            {"/proc/self/mountinfo", kVersion2Mount},
                                            {"/sys/fs/cgroup/cpu.max", text}})),
                  std::nullopt)
            << text;
}

TEST(ThreadCount, TheArgumentComesFirst) { EXPECT_EQ(thread_count({3, "5", "7", 16, 2.0}), 3); }

TEST(ThreadCount, ThenTilewrightsVariable) {
    EXPECT_EQ(thread_count({0, "5", "7", 16, 2.0}), 5);
    EXPECT_EQ(thread_count({0, " 5 ", std::nullopt, 16, std::nullopt}), 5);
}

TEST(ThreadCount, ThenOpenMPs) {
    EXPECT_EQ(thread_count({0, std::nullopt, "7", 16, 2.0}), 7);
    EXPECT_EQ(thread_count({0, "", "7", 16, std::nullopt}), 7);
    EXPECT_EQ(thread_count({0, "0", "4,2", 16, std::nullopt}), 4);
}

TEST(ThreadCount, ThenTheAffinityMaskAndTheQuotaRoundedUp) {
    EXPECT_EQ(thread_count({0, std::nullopt, std::nullopt, 16, std::nullopt}), 16);
    EXPECT_EQ(thread_count({0, std::nullopt, std::nullopt, 16, 2.5}), 3);
    EXPECT_EQ(thread_count({0, std::nullopt, std::nullopt, 16, 0.1}), 1);
    EXPECT_EQ(thread_count({0, std::nullopt, std::nullopt, 2, 8.0}), 2);
    EXPECT_EQ(thread_count({0, std::nullopt, std::nullopt, 5000, std::nullopt}), kMaxThreads);
}

TEST(ThreadCount, MalformedOpenMPVariableIsIgnored) {
    for (const char* text : {"", "many", "-1", "0", ",3"})
        EXPECT_EQ(thread_count({0, std::nullopt, text, 6, std::nullopt}), 6) << text;
}

TEST(ThreadCount, ExplicitChoicesAreCheckedAndNamed) {
    EXPECT_THROW(thread_count({-1, std::nullopt, std::nullopt, 6, std::nullopt}), RuntimeError);
    EXPECT_THROW(thread_count({kMaxThreads + 1, std::nullopt, std::nullopt, 6, std::nullopt}), RuntimeError);
    EXPECT_THROW(thread_count({0, "-2", std::nullopt, 6, std::nullopt}), RuntimeError);
    try {
        thread_count({0, "two", std::nullopt, 6, std::nullopt});
        FAIL();
    } catch (const RuntimeError& e) {
        EXPECT_STREQ(e.what(), "TILEWRIGHT_NUM_THREADS is 'two'; expected a number from 1 to 1024");
    }
}

TEST(AllowedCpus, FollowTheAffinityMask) {
    const std::vector<int> all = allowed_cpus();
    ASSERT_FALSE(all.empty());
    EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
    std::vector<int> narrowed;
    std::thread([&] {  // on another thread, so that this thread keeps its mask
        cpu_set_t mask;
        CPU_ZERO(&mask);
        CPU_SET(all.back(), &mask);
        if (sched_setaffinity(0, sizeof mask, &mask) == 0) narrowed = allowed_cpus();
    })
        .join();
    EXPECT_EQ(narrowed, std::vector<int>{all.back()});
    EXPECT_EQ(allowed_cpus(), all);
    EXPECT_LE(usable_cpu_count(), static_cast<int>(all.size()));
    EXPECT_GE(usable_cpu_count(), 1);
}

TEST(SpreadOverCores, OneHardwareThreadOfEachCoreFirst) {
    Files files;
    for (int cpu = 0; cpu < 4; ++cpu)
        files["/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list"] =
            cpu < 2 ? "0-1\n" : "2-3\n";
    EXPECT_EQ(spread_over_cores({0, 1, 2, 3}, machine(files)), (std::vector<int>{0, 2, 1, 3}));
    EXPECT_EQ(spread_over_cores({1, 2, 3}, machine(files)), (std::vector<int>{1, 2, 3}));
    EXPECT_EQ(spread_over_cores({4, 9, 5}, machine({})), (std::vector<int>{4, 9, 5}));
}

}  // namespace
}  // namespace tilewright
