// Commands with unusable caches, full disks and file size limits; effects of one command on the next.

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cost/target.h"
#include "tool/tool_runner_test.h"

namespace tilewright::tool_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;
namespace fs = std::filesystem;

class CacheCommand : public testing::Test {
  protected:
    void SetUp() override {
        limits_.environment = {{"XDG_CACHE_HOME", place_ / "cache"}};
        fs::create_directory(place_ / "cache");
        fs::permissions(place_ / "cache", fs::perms::owner_all);
        ASSERT_EQ(run({"zoo", "mlp", "-o", "model.onnx", "--set", "batch=0"}).status, 0);
        ASSERT_EQ(run({"zoo", "attention", "-o", "attention.onnx"}).status, 0);
    }
    Result run(const std::vector<std::string>& arguments) const { return place_.run(arguments, limits_); }
    Result measured_op(const std::vector<std::string>& more = {}) const {
        std::vector<std::string> arguments = {
            "op",      "gemm m=48 n=96 k=64", "--scheduler", "search", "--trials", "4", "--time", "0.005", "--json",
            "op.json", "--no-check"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run(arguments);
    }
    static size_t lines_that_begin(const std::string& text, const std::string& begin) {
        std::istringstream lines(text);
        size_t n = 0;
        for (std::string line; std::getline(lines, line);) n += line.starts_with(begin) ? 1 : 0;
        return n;
    }

    Workplace place_;
    Limits limits_;
};

TEST_F(CacheCommand, WarnsOnceAboutAnUnusableCache) {
    EXPECT_EQ(run({"run", "model.onnx"}).err, "");
    EXPECT_TRUE(place_.exists("cache/tilewright/code"));
    fs::permissions(place_ / "cache/tilewright/code", fs::perms::all);
    const Result open = run({"run", "model.onnx"});
    EXPECT_EQ(open.status, 0);
    EXPECT_THAT(open.err, AllOf(StartsWith("warning: compiled kernels are not cached: folder '"),
                                HasSubstr("tilewright/code' can be written by others (mode 0777): chmod go-w '")));
    EXPECT_EQ(lines_that_begin(open.err, ""), 1u);
    EXPECT_EQ(run({"run", "model.onnx", "--no-code-cache"}).err, "");
    const auto with_cache_at = [&](const std::string& folder) {
        limits_.environment = {{"XDG_CACHE_HOME", folder}};
        const Result r = run({"run", "model.onnx"});
        EXPECT_EQ(r.status, 0) << folder;
        EXPECT_EQ(lines_that_begin(r.err, "warning: compiled kernels are not cached: folder '"), 1u) << r.err;
        EXPECT_EQ(lines_that_begin(r.err, ""), 1u) << r.err;
        return r.err;
    };
    EXPECT_THAT(with_cache_at("/proc/nowhere"), HasSubstr("folder '/proc/nowhere' cannot be made"));
    place_.folder.write("isfile/tilewright", "a file");
    EXPECT_THAT(with_cache_at(place_ / "isfile"), HasSubstr("tilewright' is not a folder: remove it"));
    fs::create_directories(place_ / "linked/tilewright");
    fs::create_directory_symlink(place_ / "cache", place_ / "linked/tilewright/code");
    EXPECT_THAT(with_cache_at(place_ / "linked"), HasSubstr("code' is a link"));
    limits_.environment = {{"XDG_CACHE_HOME", "/proc/nowhere"}};
    const Result tuned = measured_op();
    EXPECT_EQ(tuned.status, 0) << tuned.err;
    EXPECT_THAT(tuned.err, AllOf(StartsWith("warning: measurements are not stored: folder '/proc/nowhere' cannot be"),
                                 Not(HasSubstr("error"))));
}

TEST_F(CacheCommand, LoadsWhatAnEarlierCommandCompiled) {
    const auto outputs = [&](const std::vector<std::string>& more) {
        std::vector<std::string> arguments = {"run", "attention.onnx", "--output-dir", "out"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const Result r = run(arguments);
        EXPECT_EQ(r.status, 0) << r.err;
        return r.out;
    };
    EXPECT_THAT(outputs({}), HasSubstr("compiled in"));
    const std::string compiled = place_.read("out/out.npy");
    EXPECT_THAT(outputs({}), HasSubstr("attention.onnx: loaded from the code cache in"));
    EXPECT_EQ(place_.read("out/out.npy"), compiled);
    EXPECT_THAT(outputs({"--no-code-cache"}), HasSubstr("compiled in"));
    EXPECT_THAT(outputs({"--numerics", "fast"}), HasSubstr("compiled in"));
    EXPECT_EQ(run({"bench", "attention.onnx", "--iterations", "1", "--json", "b.json"}).status, 0);
    EXPECT_EQ(Json::parse(place_.read("b.json"))["from_cache"], true);
    EXPECT_EQ(run({"bench", "attention.onnx", "--iterations", "1", "--kernels", "3"}).status, 0);
}

TEST_F(CacheCommand, ToleratesAFileSizeLimit) {
    for (const uint64_t bytes : {uint64_t{700}, uint64_t{1000}, uint64_t{4096}, uint64_t{40000}}) {
        SCOPED_TRACE(bytes);
        limits_.environment = {{"XDG_CACHE_HOME", place_ / ("limited" + std::to_string(bytes))}};
        limits_.file_bytes = bytes;
        limits_.out = "/dev/null";
        const Result r = run({"run", "model.onnx"});
        EXPECT_EQ(r.status, 0) << r.err;
        EXPECT_LE(lines_that_begin(r.err, "warning: compiled kernels are not cached: "), 1u) << r.err;
        if (bytes == 700) {
            EXPECT_THAT(r.err, HasSubstr("File too large"));
        }
        const Result tuned = place_.run(
            {"op", "gemm m=48 n=96 k=64", "--scheduler", "search", "--trials", "4", "--time", "0.005", "--no-check"},
            limits_);
        EXPECT_EQ(tuned.status, 0) << tuned.err;
        EXPECT_THAT(tuned.err, Not(HasSubstr("disk I/O error")));
        if (bytes <= 4096) {
            EXPECT_THAT(tuned.err, AllOf(StartsWith("warning: measurements are not stored: "),
                                         HasSubstr("the disk is full, a file size limit is reached")));
        }
        if (bytes > 1000) continue;
        for (const std::vector<std::string>& output : std::vector<std::vector<std::string>>{
                 {"run", "model.onnx", "--output-npz", "out.npz", "--dim", "batch=100", "--no-code-cache"},
                 {"run", "model.onnx", "--output-dir", "out", "--dim", "batch=100", "--no-code-cache"},
                 {"zoo", "mlp", "-o", "written.onnx"},
                 {"explain", "model.onnx", "--html", "page.html", "--no-code-cache"},
                 {"bench", "model.onnx", "--iterations", "1", "--trace", "trace.json", "--json", "bench.json",
                  "--kernels", "20", "--no-code-cache"}}) {
            const Result written = run(output);
            EXPECT_TRUE(refused(written)) << output[0];
            EXPECT_THAT(written.err, HasSubstr("File too large")) << output[0];
        }
    }
}

TEST_F(CacheCommand, AFullStandardOutputIsAnError) {
    limits_.out = "/dev/full";
    for (const std::vector<std::string>& command :
         std::vector<std::vector<std::string>>{{"--help"},
                                               {"--version"},
                                               {"run", "--help"},
                                               {"run", "model.onnx"},
                                               {"bench", "model.onnx", "--iterations", "1"},
                                               {"explain", "model.onnx"},
                                               {"op", "--list"},
                                               {"op", "gemm m=8 n=16 k=8", "--time", "0.001"},
                                               {"verify", "model.onnx"},
                                               {"check", "model.onnx"},
                                               {"dump", "model.onnx", "--stage", "asm"},
                                               {"zoo", "--list"},
                                               {"info"},
                                               {"conformance", "case"}}) {
        if (command[0] == "conformance") {
            fs::create_directories(place_ / "case/test_data_set_0");
            fs::copy_file(place_ / "model.onnx", place_ / "case/model.onnx");
        }
        const Result r = run(command);
        EXPECT_TRUE(refused(r)) << command[0];
        EXPECT_THAT(r.err, HasSubstr("error: cannot write to ")) << command[0];
    }
}

TEST_F(CacheCommand, BenchPrintsAssumedSizes) {
    const Result one = run({"bench", "model.onnx", "--iterations", "1", "--json", "one.json"});
    EXPECT_THAT(one.out, HasSubstr("\nsizes assumed: batch = 1 (--dim NAME=SIZE, --input or --data set them)\n"));
    EXPECT_EQ(Json::parse(place_.read("one.json"))["assumed_dims"], (Json{{"batch", 1}}));
    const Result two = run({"bench", "model.onnx", "--iterations", "1", "--dim", "batch=2", "--json", "two.json"});
    EXPECT_THAT(two.out, Not(HasSubstr("assumed:")));
    EXPECT_TRUE(Json::parse(place_.read("two.json"))["assumed_dims"].empty());
    for (const char* command : {"run", "bench", "verify"}) {
        const Result wrong = run({command, "model.onnx", "--dim", "batsh=2"});
        EXPECT_TRUE(refused(wrong));
        EXPECT_THAT(wrong.err, HasSubstr("hint: its named dimensions: batch; did you mean 'batch'?\n"));
    }
}

/// Measurements of one command change the plans of other commands only if they measure too.
TEST_F(CacheCommand, MeasurementsChangeOnlyMeasuredPlans) {
    const std::vector<std::string> plain = {"dump", "attention.onnx", "--stage", "tiles", "--threads",
                                            "1",    "--no-code-cache"};
    std::vector<std::string> optimal = plain;
    optimal.insert(optimal.end(), {"--orchestrate", "optimal"});
    const std::string before = run(plain).out, chosen = run(optimal).out;
    EXPECT_NE(before, "");
    ASSERT_EQ(measured_op().status, 0);
    ASSERT_EQ(run({"bench", "attention.onnx", "--measure", "--iterations", "1", "--threads", "1"}).status, 0);
    ASSERT_EQ(run({"bench", "attention.onnx", "--orchestrate", "optimal", "--profile", "lazy", "--iterations", "1",
                   "--threads", "1"})
                  .status,
              0);
    EXPECT_TRUE(place_.exists("cache/tilewright/tuning.db"));
    EXPECT_FALSE(fs::exists(place_ / ("cache/tilewright/target-" + target_key(host_target()) + ".json")))
        << "all later plans would use these rates";
    EXPECT_EQ(run(plain).out, before);
    EXPECT_EQ(run(optimal).out, chosen);
    std::vector<std::string> cached = plain;
    cached.pop_back();
    EXPECT_EQ(run(cached).out, before);
    EXPECT_EQ(run(cached).out, before);
}

/// The first compilation on a machine measures its rates, says so in one line, and keeps them for the next command.
TEST_F(CacheCommand, TheFirstCompilationCalibrates) {
    limits_.environment.emplace_back("TILEWRIGHT_CALIBRATE", "1");
    const std::string path = "cache/tilewright/target-" + target_key(host_target()) + ".json";
    EXPECT_EQ(run({"bench", "model.onnx", "--iterations", "1", "--no-calibrate"}).err, "");
    EXPECT_FALSE(place_.exists(path));
    const Result first = run({"bench", "model.onnx", "--iterations", "1"});
    EXPECT_EQ(first.status, 0) << first.err;
    EXPECT_THAT(first.err, AllOf(StartsWith("note: measured this machine's rates in "), HasSubstr(place_ / path)));
    EXPECT_EQ(lines_that_begin(first.err, ""), 1u) << first.err;
    EXPECT_THAT(first.out, HasSubstr("measured FMA peak"));
    const Target kept = target_from_json(place_.read(path));
    EXPECT_TRUE(kept.calibrated);
    EXPECT_TRUE(kept.quick);
    const Result second = run({"bench", "model.onnx", "--iterations", "1"});
    EXPECT_EQ(second.err, "");
    EXPECT_EQ(target_from_json(place_.read(path)), kept);
    EXPECT_THAT(run({"info"}).out, HasSubstr("measured briefly"));
}

/// Files of calibrated rates that another user wrote, or that are malformed, are ignored without an error.
TEST_F(CacheCommand, IgnoresRatesThatOthersMayHaveWritten) {
    Target rates = host_target();
    rates.calibrated = true;
    rates.fma_gflops_1 = {123456, 0.01, 9};
    const std::string path = place_ / ("cache/tilewright/target-" + target_key(rates) + ".json");
    save_target(rates, path);
    const auto takes_them = [&] {
        const Result r = run({"bench", "model.onnx", "--iterations", "1"});
        EXPECT_EQ(r.status, 0) << r.err;
        return r.out.find("measured FMA peak") != std::string::npos;
    };
    EXPECT_TRUE(takes_them());
    fs::permissions(path, fs::perms::others_write, fs::perm_options::add);
    EXPECT_FALSE(takes_them());
    fs::permissions(path, fs::perms::others_write, fs::perm_options::remove);
    fs::permissions(place_ / "cache/tilewright", fs::perms::all);
    EXPECT_FALSE(takes_them());
    fs::permissions(place_ / "cache/tilewright", fs::perms::owner_all);
    EXPECT_TRUE(takes_them());
    if (::geteuid() == 0) {
        ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
        EXPECT_FALSE(takes_them());
    }
    fs::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    EXPECT_FALSE(takes_them());
    fs::remove(path);
    fs::create_symlink("/dev/zero", path);
    EXPECT_FALSE(takes_them());
    fs::remove(path);
    // The largest and smallest rates that a machine description may have.
    for (const double factor : {1e-300, 1e300}) {
        Target odd = rates;
        for (CacheLevel& level : odd.caches) level.load_gbps.value = level.latency_ns.value = factor;
        odd.memory_gbps_1.value = odd.memory_latency_ns.value = odd.fma_gflops_1.value = odd.ghz.value = factor;
        save_target(odd, path);
        for (const char* orchestrate : {"greedy", "optimal"}) {
            const Result r = run({"bench", "attention.onnx", "--iterations", "1", "--orchestrate", orchestrate});
            EXPECT_LE(r.status, 1) << factor << r.err;
            EXPECT_THAT(r.err, Not(HasSubstr("bug of Tilewright"))) << factor;
        }
    }
}

}  // namespace
}  // namespace tilewright::tool_test
