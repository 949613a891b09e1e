#include "cost/host_probe.h"

#include <gtest/gtest.h>

#include <map>

namespace tilewright {
namespace {

/// A machine as a map from path to text.
FileReader files(std::map<std::string, std::string> texts) {
    return [texts = std::move(texts)](const std::string& path) -> std::optional<std::string> {
        const auto found = texts.find(path);
        if (found == texts.end()) return std::nullopt;
        return found->second;
    };
}

constexpr const char* kServer =
    "processor\t: 0\n"
    "vendor_id\t: GenuineIntel\n"
    "cpu family\t: 6\n"
    "model\t\t: 85\n"
    "model name\t: Some Xeon\n"
    "stepping\t: 7\n"
    "cpu MHz\t\t: 800.123\n"
    "bogomips\t: 7800.50\n"
    "flags\t\t: fpu sse sse2 pni ssse3 fma movbe popcnt avx f16c abm bmi1 avx2 bmi2 avx512f avx512dq avx512cd avx512bw "
    "avx512vl avx512_vnni\n"
    "\n"
    "processor\t: 1\n"
    "model name\t: Another\n";

TEST(DescribeCpu, ReadsTheFirstProcessor) {
    Target t;
    describe_cpu(kServer, "x86_64", t);
    EXPECT_EQ(t.cpu, "Some Xeon");
    EXPECT_EQ(t.cpu_id, "GenuineIntel 6/85/7");
    EXPECT_EQ(t.arch, "x86_64");
}

TEST(DescribeCpu, SpellsFeaturesAsLlvmDoesSorted) {
    Target t;
    describe_cpu(kServer, "x86_64", t);
    const std::vector<std::string> expected = {"avx",      "avx2",       "avx512bw", "avx512cd", "avx512dq", "avx512f",
                                               "avx512vl", "avx512vnni", "bmi",      "bmi2",     "f16c",     "fma",
                                               "lzcnt",    "movbe",      "popcnt",   "sse3",     "ssse3"};
    EXPECT_EQ(t.features, expected);
}

Target with_flags(const std::string& flags) {
    Target t;
    describe_cpu("flags : " + flags + "\n", "x86_64", t);
    return t;
}

TEST(DescribeCpu, AVectorLevelNeedsAllOfItsFeatures) {
    const std::string v3 = "avx avx2 fma f16c bmi1 bmi2";
    const std::string v4 = v3 + " avx512f avx512cd avx512bw avx512dq avx512vl";
    EXPECT_EQ(with_flags("sse sse2").isa, VectorIsa::baseline);
    EXPECT_EQ(with_flags("avx avx2 f16c bmi1 bmi2").isa, VectorIsa::baseline) << "no fma";
    EXPECT_EQ(with_flags(v3).isa, VectorIsa::avx2);
    EXPECT_EQ(with_flags(v3 + " avx512f").isa, VectorIsa::avx2) << "a Xeon Phi";
    EXPECT_EQ(with_flags(v4).isa, VectorIsa::avx512);
}

TEST(DescribeCpu, TheVectorLevelGivesWidthAndRegisters) {
    const Target avx2 = with_flags("avx avx2 fma f16c bmi1 bmi2");
    EXPECT_EQ(avx2.vector_bits, 256);
    EXPECT_EQ(avx2.vector_registers, 16);
    EXPECT_EQ(avx2.lanes(DType::F32), 8);
    EXPECT_EQ(avx2.lanes(DType::F64), 4);
    EXPECT_EQ(avx2.lanes(DType::I8), 32);
}

TEST(DescribeCpu, ReadsArmsOwnWords) {
    Target t;
    describe_cpu(
        "processor : 0\nFeatures : fp asimd atomics asimdhp asimddp sve i8mm bf16\nCPU implementer : 0x41\n"
        "CPU architecture: 8\nCPU variant : 0x1\nCPU part : 0xd40\nCPU revision : 1\n",
        "aarch64", t);
    EXPECT_EQ(t.cpu_id, "0x41 8/0xd40/1");
    EXPECT_EQ(t.cpu, t.cpu_id) << "has no name";
    EXPECT_EQ(t.isa, VectorIsa::neon);
    EXPECT_EQ(t.vector_registers, 32);
    EXPECT_TRUE(t.has("neon"));
    EXPECT_TRUE(t.has("fullfp16"));
    EXPECT_TRUE(t.has("dotprod"));
    EXPECT_FALSE(t.has("avx2"));
}

TEST(DescribeCpu, NothingKnownIsTheBaseline) {
    Target t;
    describe_cpu("", "x86_64", t);
    EXPECT_EQ(t.isa, VectorIsa::baseline);
    EXPECT_EQ(t.vector_bits, 128);
    EXPECT_TRUE(t.features.empty());
    describe_cpu("no colon here\n:\nmodel name", "x86_64", t);
    EXPECT_EQ(t.isa, VectorIsa::baseline);
}

std::map<std::string, std::string> cache(int index, const char* type, int level, const char* size, const char* shared) {
    const std::string folder = "/sys/devices/system/cpu/cpu3/cache/index" + std::to_string(index) + "/";
    return {{folder + "type", std::string(type) + "\n"},
            {folder + "level", std::to_string(level) + "\n"},
            {folder + "size", std::string(size) + "\n"},
            {folder + "coherency_line_size", "64\n"},
            {folder + "ways_of_associativity", std::to_string(4 * level) + "\n"},
            {folder + "shared_cpu_list", std::string(shared) + "\n"}};
}

TEST(ReadCaches, TakesDataAndUnifiedCachesInOrder) {
    std::map<std::string, std::string> texts = cache(0, "Unified", 2, "1280K", "2-3");
    texts.merge(cache(1, "Data", 1, "48K", "3"));
    texts.merge(cache(2, "Instruction", 1, "32K", "3"));
    texts.merge(cache(3, "Unified", 3, "54M", "0-7,16-23"));
    const auto caches = read_caches(3, files(texts));
    ASSERT_EQ(caches.size(), 3u);
    EXPECT_EQ(caches[0].bytes, 48 << 10);
    EXPECT_EQ(caches[0].shared_by, 1);
    EXPECT_EQ(caches[0].line_bytes, 64);
    EXPECT_EQ(caches[1].level, 2);
    EXPECT_EQ(caches[1].bytes, 1280 << 10);
    EXPECT_EQ(caches[1].shared_by, 2);
    EXPECT_EQ(caches[2].bytes, 54 << 20);
    EXPECT_EQ(caches[2].shared_by, 16);
    EXPECT_EQ(caches[0].ways, 4);
    EXPECT_EQ(caches[2].ways, 12);
}

TEST(ReadCaches, SkipsEntriesThatCannotBeParsed) {
    std::map<std::string, std::string> texts = cache(0, "Data", 1, "lots", "0");
    texts.merge(cache(1, "Unified", 2, "-1K", "0"));
    texts.merge(cache(2, "Unified", 3, "2048K", "none"));
    const auto caches = read_caches(3, files(texts));
    ASSERT_EQ(caches.size(), 1u);
    EXPECT_EQ(caches[0].level, 3);
    EXPECT_EQ(caches[0].shared_by, 1);
    EXPECT_TRUE(read_caches(0, files({})).empty());
}

TEST(ReadGhz, PrefersTheHighestAllowedClock) {
    const auto sys = files({{"/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "5100000\n"}});
    EXPECT_DOUBLE_EQ(read_ghz(0, kServer, sys), 5.1);
    EXPECT_DOUBLE_EQ(read_ghz(0, kServer, files({})), 3.90025);
}

TEST(ReadGhz, ANominalClockBelowTheUsualIsNotTheHighest) {
    EXPECT_DOUBLE_EQ(read_ghz(0, "cpu MHz : 2100.0\nbogomips : 4200.0\n", files({})), 3.5);
    EXPECT_DOUBLE_EQ(read_ghz(0, "", files({})), 3.5);
}

TEST(ReadGhz, IsTheSameWhateverThePresentClock) {
    const std::string nominal = "bogomips : 8000.0\n";
    EXPECT_DOUBLE_EQ(read_ghz(0, "cpu MHz : 4700.0\n" + nominal, files({})), 4.0);
    EXPECT_DOUBLE_EQ(read_ghz(0, "cpu MHz : 800.0\n" + nominal, files({})), 4.0);
}

TEST(CountCores, HardwareThreadsOfOneCoreCountOnce) {
    const auto siblings = [](int cpu) {
        return "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list";
    };
    const auto sys =
        files({{siblings(0), "0,2\n"}, {siblings(1), "1,3\n"}, {siblings(2), "0,2\n"}, {siblings(3), "1,3\n"}});
    EXPECT_EQ(count_cores({0, 1, 2, 3}, sys), 2);
    EXPECT_EQ(count_cores({0, 2}, sys), 1);
    EXPECT_EQ(count_cores({0, 1, 2, 3}, files({})), 4) << "unknown: every CPU is a core";
}

TEST(CountCpuList, ReadsLinuxLists) {
    EXPECT_EQ(count_cpu_list("0\n"), 1);
    EXPECT_EQ(count_cpu_list("0-3"), 4);
    EXPECT_EQ(count_cpu_list("0-3,8,10-11\n"), 7);
    EXPECT_EQ(count_cpu_list(""), 0);
    EXPECT_EQ(count_cpu_list("3-1"), 0);
    EXPECT_EQ(count_cpu_list("x"), 0);
}

TEST(AssumeRates, LeavesWhatIsMeasured) {
    Target t = generic_target(VectorIsa::avx2);
    t.fma_gflops_1 = {100, 0.01, 31};
    t.memory_gbps_1.value = 0;
    assume_rates(t);
    EXPECT_EQ(t.fma_gflops_1, (Measure{100, 0.01, 31}));
    EXPECT_GT(t.memory_gbps_1.value, 0);
}

TEST(AssumeRates, TwoMultiplyAddsACycle) {
    Target t;
    set_isa(VectorIsa::avx512, t);
    t.ghz.value = 3;
    t.cores = 4;
    assume_rates(t);
    EXPECT_DOUBLE_EQ(t.fma_gflops_1.value, 3 * 16 * 2 * 2);
    EXPECT_DOUBLE_EQ(t.fma_gflops_all.value, 4 * 3 * 16 * 2 * 2);
}

}  // namespace
}  // namespace tilewright
