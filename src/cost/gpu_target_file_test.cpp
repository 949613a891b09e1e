// Rates that are measured on a GPU, and the file that keeps them.

#include "cost/gpu_target_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "base/error.h"
#include "base/temporary_folder_test.h"

namespace tilewright {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// What bench_probe printed on an H100 (docs/gpu.md). `memory_latency` and the drained products, which that page does
/// not have, are what 0.4 us of a copy and 0.03 us of a restart mean.
GpuProbes of_an_h100() {
    return {{"launch_graph_1", 0.79},
            {"memory_read", 3068},
            {"l2_read_16_mib", 7400},
            {"shared_read", 125},
            {"shared_latency", 29},
            {"memory_latency", 668},
            {"l2_latency", 289},
            {"f32", 60.7},
            {"warp_f16", 629},
            {"warp_tf32", 320},
            {"box_1", 413},
            {"box_16_all", 8192 / 31.5},
            {"group_f16_256_2_rate", 861},
            {"group_tf32_256_2_rate", 451},
            {"group_f16_256_2_drained", 272},
            {"group_f16_256_2", 257}};
}

GpuTarget h100() {
    GpuTarget t = h200();
    t.name = "NVIDIA H100 80GB HBM3";
    t.driver = 13000;
    t.memory_bytes = int64_t{80} << 30;
    t.memory_gbps = 3350;
    assume_rates(t);
    return t;
}

std::string error_of(const std::function<void()>& f) {
    try {
        f();
    } catch (const RuntimeError& e) {
        return e.what();
    }
    return "nothing was refused";
}

TEST(GpuRates, of_an_h100_are_those_that_are_assumed_of_others) {
    const GpuTarget gpu = h100();
    const GpuRates r = rates_of(of_an_h100(), gpu);
    for (const GpuRateField& f : gpu_rate_fields())
        EXPECT_NEAR(r.*f.member / (gpu.rates.*f.member), 1, 0.14) << f.name << ", " << r.*f.member;
    EXPECT_DOUBLE_EQ(r.cache_bytes, 31.5);
    EXPECT_NEAR(r.copy_us, 0.4, 1e-3);    // 668 + 413 - 289 clocks
    EXPECT_NEAR(r.drain_us, 0.03, 1e-3);  // four instructions of 15 more clocks
    EXPECT_EQ(r.group_f16_gflops, 861000);
}

TEST(GpuRates, are_copies_by_threads_on_a_gpu_without_tma) {
    GpuProbes probes = of_an_h100();
    for (const char* name : {"box_1", "box_16_all", "group_f16_256_2_rate", "group_tf32_256_2_rate",
                             "group_f16_256_2_drained", "group_f16_256_2"})
        probes.erase(name);
    EXPECT_EQ(error_of([&] { rates_of(probes, h100()); }), "no figure 'box_1'");
    const GpuTarget gpu = a100();
    const GpuRates r = rates_of(probes, gpu);
    EXPECT_DOUBLE_EQ(r.cache_bytes, 7400 / (108 * 1.41));
    EXPECT_DOUBLE_EQ(r.copy_us, 668 / 1.41 * 1e-3);
    EXPECT_EQ(r.group_f16_gflops, 0);
}

TEST(GpuRates, that_no_gpu_has_are_refused_with_their_name) {
    GpuProbes probes = of_an_h100();
    probes["memory_read"] = 3.068;  // TB/s
    EXPECT_EQ(error_of([&] { rates_of(probes, h100()); }), "memory_gbps is 3.068 GB/s, expected 335 to 3.35e+04");
    probes = of_an_h100();
    probes["shared_read"] = 0;
    EXPECT_THAT(error_of([&] { rates_of(probes, h100()); }), HasSubstr("shared_bytes is 0 bytes/clock/SM, expected"));
}

/// The cache folder is a temporary one.
class GpuTargetFile : public testing::Test {
  protected:
    GpuTargetFile() {
        if (const char* value = getenv("XDG_CACHE_HOME")) before_ = value;
        setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
        measured_ = h100();
        measured_.rates = rates_of(of_an_h100(), measured_);
        measured_.measured = true;
    }
    ~GpuTargetFile() override { before_ ? setenv("XDG_CACHE_HOME", before_->c_str(), 1) : unsetenv("XDG_CACHE_HOME"); }
    TemporaryFolder folder_;
    GpuTarget measured_;

  private:
    std::optional<std::string> before_;
};

TEST_F(GpuTargetFile, gives_a_device_the_rates_that_were_measured_on_it) {
    std::string why;
    EXPECT_EQ(with_kept_rates(h100(), &why), h100());
    EXPECT_EQ(why, "") << "nothing has been measured";
    const std::string path = save_target(measured_, of_an_h100());
    EXPECT_EQ(path, folder_ / "tilewright/gpu-" + target_key(h100()) + ".json");
    EXPECT_EQ(with_kept_rates(h100(), &why), measured_);
    EXPECT_EQ(why, "");
    EXPECT_THAT(read_whole(path),
                AllOf(HasSubstr("\"gpu\": \"NVIDIA H100 80GB HBM3\""), HasSubstr("\"l2_latency\": 289")));
    EXPECT_EQ(gpu_target_from_json(read_whole(path)), measured_) << "and describes the GPU where it is not there";
}

TEST_F(GpuTargetFile, is_of_one_device_and_driver) {
    const std::string key = target_key(h100());
    for (const auto& change : std::vector<std::function<void(GpuTarget&)>>{
             [](GpuTarget& t) { t.name = "NVIDIA H200"; }, [](GpuTarget& t) { t.multiprocessors = 114; },
             [](GpuTarget& t) { t.driver = 12080; }, [](GpuTarget& t) { t.minor = 3; }}) {
        GpuTarget other = h100();
        change(other);
        EXPECT_NE(target_key(other), key);
        // A file that lies where another device's would.
        save_target(measured_, {});
        std::filesystem::copy(target_path(measured_), target_path(other));
        std::string why;
        EXPECT_EQ(with_kept_rates(other, &why), other);
        EXPECT_THAT(why,
                    AllOf(HasSubstr(target_path(other) + ": describes 'NVIDIA H100 80GB HBM3' (sm_90, 132 SMs, driver "
                                                         "of CUDA 13.0), and this is '"),
                          HasSubstr(other.name)));
    }
    EXPECT_EQ(target_key(measured_), key) << "rates are no part of it";
}

TEST_F(GpuTargetFile, that_is_damaged_is_refused_with_its_path_and_the_reason) {
    const std::string path = save_target(measured_, {}), whole = read_whole(path);
    const auto refusal = [&](const std::string& text) {
        std::ofstream(path, std::ios::binary) << text;
        std::string why;
        EXPECT_EQ(with_kept_rates(h100(), &why), h100());
        EXPECT_EQ(why.find(path + ": "), 0u) << why;
        return why;
    };
    const auto changed = [&](const std::string& from, const std::string& to) {
        const size_t at = whole.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        return whole.substr(0, at) + to + whole.substr(at + from.size());
    };
    for (const std::string& text : {std::string(), whole.substr(0, whole.size() / 2), std::string("[]"),
                                    std::string(1000, '['), std::string("\0\xff\x80", 3)})
        EXPECT_THAT(refusal(text), HasSubstr("not a description of a GPU: "));
    EXPECT_THAT(refusal(changed("\"format\": 1", "\"format\": 2")), HasSubstr("format 2, expected 1"));
    EXPECT_THAT(refusal(changed("\"shared_clocks\"", "\"clocks\"")), HasSubstr("shared_clocks"));
    EXPECT_THAT(refusal(changed("\"shared_bytes\": 125", "\"shared_bytes\": -125")),
                HasSubstr("shared_bytes is -125 bytes/clock/SM, expected"));
    std::filesystem::permissions(path, std::filesystem::perms::group_write, std::filesystem::perm_options::add);
    EXPECT_THAT(refusal(whole), HasSubstr("others may write to it"));
}

}  // namespace
}  // namespace tilewright
