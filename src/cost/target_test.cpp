#include "cost/target.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "cost/host_probe.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;

constexpr VectorIsa kAll[] = {VectorIsa::baseline, VectorIsa::avx2, VectorIsa::avx512, VectorIsa::neon};

/// A target with no two figures alike, so that a mixed-up field shows.
Target distinct() {
    Target t = generic_target(VectorIsa::avx512);
    t.cpu = "A \"quoted\" CPU";
    t.cpu_id = "Vendor 1/2/3";
    t.cores = 6;
    t.threads = t.workers = 12;
    double next = 1.25;
    int samples = 3;
    const auto fill = [&](Measure& m) { m = {next += 1.5, next / 1000, samples++}; };
    for (Measure* m : {&t.ghz, &t.memory_latency_ns, &t.memory_gbps_1, &t.memory_gbps_all, &t.copy_gbps_1,
                       &t.copy_gbps_all, &t.fma_gflops_1, &t.fma_gflops_all, &t.dispatch_us}) {
        fill(*m);
    }
    for (CacheLevel& c : t.caches) {
        fill(c.load_gbps);
        fill(c.latency_ns);
        c.measured_bytes = c.bytes - 4096;
        c.line_bytes = 128;
        c.shared_by = c.level;
        c.ways = 4 + c.level;
    }
    t.calibrated = true;
    return t;
}

/// A folder of its own for each test, with the environment variables that name the user's folders.
class TargetFile : public testing::Test {
  protected:
    TargetFile() {
        std::string name = (fs::temp_directory_path() / "target_test_XXXXXX").string();
        folder_ = mkdtemp(name.data());
        for (const char* variable : {"XDG_CACHE_HOME", "HOME"}) {
            const char* value = getenv(variable);
            saved_.emplace_back(variable, value != nullptr ? std::optional<std::string>(value) : std::nullopt);
        }
    }
    ~TargetFile() override {
        for (const auto& [variable, value] : saved_) set(variable.c_str(), value);
        fs::remove_all(folder_);
    }
    static void set(const char* variable, const std::optional<std::string>& value) {
        value ? setenv(variable, value->c_str(), 1) : unsetenv(variable);
    }
    static void write(const std::string& path, const std::string& text) {
        std::ofstream(path, std::ios::binary) << text;
    }

    std::string folder_;

  private:
    std::vector<std::pair<std::string, std::optional<std::string>>> saved_;
};

TEST(VectorIsa, NamesAreReadBack) {
    for (VectorIsa isa : kAll) EXPECT_EQ(vector_isa_from_string(to_string(isa)), isa);
    EXPECT_EQ(vector_isa_from_string("mmx"), std::nullopt);
}

TEST(GenericTarget, MakesSenseForEveryVectorIsa) {
    for (VectorIsa isa : kAll) {
        const Target t = generic_target(isa);
        EXPECT_EQ(verify(t), "") << to_string(isa);
        EXPECT_EQ(t.isa, isa);
        EXPECT_FALSE(t.calibrated);
        EXPECT_TRUE(std::is_sorted(t.features.begin(), t.features.end()));
    }
    EXPECT_EQ(generic_target(VectorIsa::neon).arch, "aarch64");
    EXPECT_TRUE(generic_target(VectorIsa::avx512).has("avx2"));
}

TEST(GenericTarget, DoesNotDependOnTheHost) {
    EXPECT_EQ(generic_target(VectorIsa::avx2), generic_target(VectorIsa::avx2));
    EXPECT_EQ(generic_target(VectorIsa::avx2).cores, 1);
}

TEST(Target, RestrictedToAnInstructionSetIsTheSameMachine) {
    Target t = generic_target(VectorIsa::avx512);
    t.native = true;
    const Target r = restricted(t, VectorIsa::avx2);
    EXPECT_EQ(r.isa, VectorIsa::avx2);
    EXPECT_EQ(r.vector_bits, 256);
    EXPECT_EQ(r.vector_registers, 16);
    EXPECT_FALSE(r.native);
    EXPECT_EQ(target_key(r), target_key(t)) << "its measurements are kept under the same machine";
    EXPECT_EQ(llvm_name(r.isa), "x86-64-v3");
}

TEST(Target, SaysWhatSchedulesAreMadeFor) {
    Target t = generic_target(VectorIsa::avx2);
    t.workers = 3;
    t.caches[1].measured_bytes = 1000;
    EXPECT_EQ(t.micro_lanes(), 8);
    EXPECT_EQ(t.micro_registers(), 16);
    EXPECT_EQ(t.tasks_at_a_time(), 3);
    EXPECT_EQ(t.task_bytes(), 1000);
    EXPECT_EQ(t.resident_bytes(), t.caches[2].bytes);
    t.caches.resize(1);
    EXPECT_EQ(t.task_bytes(), 1 << 20) << "assumed where there is no second level";
    const Target gpu = with_gpu(t, a100());
    EXPECT_EQ(gpu.micro_lanes(), 4);
    EXPECT_EQ(gpu.tasks_at_a_time(), a100().multiprocessors);
    EXPECT_EQ(gpu.task_bytes(), a100().block_shared_bytes);
    EXPECT_EQ(gpu.lanes(DType::F32), 8) << "of the host";
}

TEST(Target, OfAnImpossibleGpuIsRefused) {
    Target t = with_gpu(generic_target(VectorIsa::avx2), a100());
    EXPECT_EQ(verify(t), "");
    t.gpu->multiprocessors = 0;
    EXPECT_NE(verify(t), "");
}

TEST(SelectableIsas, AreThoseOfThisArchitecture) {
    for (const std::string& name : selectable_isas()) {
        const auto level = code_level_from_string(name);
        ASSERT_TRUE(level) << name;
        EXPECT_EQ(generic_target(level->isa).arch, host_target().arch);
        EXPECT_EQ(isa_of(generic_target(level->isa)), level->isa);
    }
}

TEST(CodeLevels, SayWhatCodeMayUse) {
    const auto at = [](const char* name) {
        return restricted(generic_target(VectorIsa::avx2), code_level_from_string(name).value());
    };
    EXPECT_FALSE(at("avx512").byte_dot_instructions());
    EXPECT_TRUE(at("avx2-vnni").byte_dot_instructions());
    EXPECT_TRUE(at("avx512-vnni").byte_dot_instructions());
    EXPECT_FALSE(at("avx512-vnni").bf16_dots());
    EXPECT_TRUE(at("avx512-bf16").bf16_dots());
    EXPECT_GT(at("avx512-bf16").dot_gflops_1.value, 0) << "assumed where it was not measured";
    EXPECT_FALSE(at("avx512-bf16").bf16_tiles());
    Target slow = at("avx512-bf16");
    slow.dot_gflops_1.value = slow.fma_gflops_1.value / 2;
    EXPECT_TRUE(slow.bf16_dot_instructions());
    EXPECT_FALSE(slow.bf16_products()) << "f32 is faster";
    EXPECT_FALSE(at("avx512-bf16").f16_products());
    EXPECT_TRUE(at("avx512-fp16").f16_products());
    EXPECT_FALSE(at("avx512-fp16").f16_sums()) << "--precision allows them";
    slow = at("avx512-fp16");
    slow.sums_in_f16 = true;
    EXPECT_TRUE(slow.f16_sums());
    slow.f16_gflops_1.value = slow.fma_gflops_1.value;
    EXPECT_FALSE(slow.f16_sums()) << "f32 is as fast";
    EXPECT_TRUE(at("amx").bf16_tiles());
    EXPECT_TRUE(at("amx").byte_tiles());
    EXPECT_EQ(at("amx").vector_bits, 512);
    EXPECT_EQ(code_level_from_string("mmx"), std::nullopt);
    for (const CodeLevel& level : code_levels()) {
        const std::vector<std::string> all = restricted(generic_target(level.isa), level).code_features();
        EXPECT_TRUE(std::is_sorted(all.begin(), all.end())) << level.name;
        for (const std::string_view more : level.more)
            EXPECT_NE(std::find(all.begin(), all.end(), more), all.end()) << level.name;
    }
}

TEST(HostTarget, MakesSense) {
    const Target t = host_target();
    EXPECT_TRUE(t.native);
    EXPECT_EQ(t.workers, t.threads);
    EXPECT_EQ(verify(t), "");
    EXPECT_FALSE(t.cpu.empty());
    EXPECT_GE(t.threads, t.cores);
    EXPECT_FALSE(t.calibrated);
}

TEST(HostTarget, IsTheSameEveryTime) { EXPECT_EQ(host_target(), host_target()); }

TEST(CacheLevel, PlansWithTheSmallerSize) {
    CacheLevel c;
    c.bytes = 1000;
    EXPECT_EQ(c.usable_bytes(), 1000) << "not measured";
    c.measured_bytes = 600;
    EXPECT_EQ(c.usable_bytes(), 600);
    c.measured_bytes = 3000;
    EXPECT_EQ(c.usable_bytes(), 1000);
}

std::string verify_after(void (*change)(Target&)) {
    Target t = generic_target(VectorIsa::avx2);
    change(t);
    return verify(t);
}

TEST(Verify, SaysWhatIsWrong) {
    EXPECT_EQ(verify_after([](Target& t) { t.fma_gflops_1.value = 0; }),
              "fma_gflops_1 is 0, expected a positive number");
    EXPECT_EQ(verify_after([](Target& t) { t.ghz.value = -1; }), "ghz is -1, expected a positive number");
    EXPECT_EQ(verify_after([](Target& t) { t.memory_gbps_1.value = INFINITY; }),
              "memory_gbps_1 is inf, expected a positive number");
    EXPECT_EQ(verify_after([](Target& t) { t.caches.clear(); }), "no caches");
    EXPECT_EQ(verify_after([](Target& t) { t.caches[1].bytes = 1024; }),
              "cache level 2 of 1024 bytes follows level 1 of 32768 bytes");
    EXPECT_EQ(verify_after([](Target& t) { t.caches[2].latency_ns.value = 0; }).substr(0, 13), "cache level 3");
    EXPECT_EQ(verify_after([](Target& t) { t.cores = 2; }), "2 cores with 1 threads");
    EXPECT_EQ(verify_after([](Target& t) { t.vector_bits = 100; }), "16 registers of 100 bits make no vector unit");
}

TEST(Json, ReadsBackEveryField) {
    const Target t = distinct();
    EXPECT_EQ(target_from_json(to_json(t)), t);
    // But for `native`, a fact about this process: a file may describe another machine.
    Target host = host_target();
    EXPECT_TRUE(host.native);
    host.native = false;
    EXPECT_EQ(target_from_json(to_json(host_target())), host);
}

TEST(Json, ANameThatIsNotUtf8IsWrittenAllTheSame) {
    Target t = distinct();
    t.cpu = "bad \xff name";
    EXPECT_EQ(target_from_json(to_json(t)).cpu, "bad \xEF\xBF\xBD name");
}

TEST(Json, NoBeginningOfItIsTaken) {
    const std::string text = to_json(distinct());
    for (size_t length = 0; length + 2 < text.size(); length += 7) {
        EXPECT_THROW(target_from_json(text.substr(0, length)), RuntimeError) << length;
    }
}

std::string refusal(std::string json, const std::string& from, const std::string& to) {
    const size_t at = json.find(from);
    if (at == std::string::npos) return "the text does not hold " + from;
    try {
        target_from_json(json.replace(at, from.size(), to));
    } catch (const RuntimeError& error) {
        return error.what();
    }
    return "taken";
}

TEST(Json, RefusalsSayWhatIsWrong) {
    const std::string json = to_json(distinct());
    EXPECT_EQ(refusal(json, "\"format\": 1", "\"format\": 99"), "format 99, expected 1");
    EXPECT_EQ(refusal(json, "\"avx512\"", "\"mmx\""), "unknown vector instructions 'mmx'");
    EXPECT_NE(refusal(json, "\"cores\"", "\"core\"").find("key 'cores' not found"), std::string::npos);
    EXPECT_NE(refusal(json, "\"vector_bits\": 512", "\"vector_bits\": \"wide\"").find("type must be number"),
              std::string::npos);
    EXPECT_EQ(refusal(json, "\"cores\": 6", "\"cores\": 60"), "not a target description: 60 cores with 12 threads");
}

TEST(TargetKey, KnowsTheMachineAndNotItsRates) {
    const Target t = distinct();
    EXPECT_EQ(target_key(t).size(), 16u);
    Target rates = t;
    rates.fma_gflops_1.value *= 2;
    rates.ghz.value = 1;
    rates.caches[0].measured_bytes = 1;
    EXPECT_EQ(target_key(rates), target_key(t));

    const auto differs = [&](void (*change)(Target&)) {
        Target other = t;
        change(other);
        return target_key(other) != target_key(t);
    };
    EXPECT_TRUE(differs([](Target& o) { o.cpu += 'X'; }));
    EXPECT_TRUE(differs([](Target& o) { o.cpu_id += 'X'; }));
    EXPECT_TRUE(differs([](Target& o) { o.features.pop_back(); }));
    EXPECT_TRUE(differs([](Target& o) { o.threads = 11; }));
    EXPECT_TRUE(differs([](Target& o) { o.caches[1].bytes *= 2; }));
}

TEST(Print, ShowsMeasuredAndAssumedValues) {
    Target t = generic_target(VectorIsa::avx2);
    EXPECT_NE(print(t).find("avx2: 16 registers of 256 bits"), std::string::npos) << print(t);
    EXPECT_NE(print(t).find("30 ? GB/s on 1 thread"), std::string::npos) << print(t);
    EXPECT_NE(print(t).find("assumed where marked ?"), std::string::npos) << print(t);
    t.memory_gbps_1 = {12.5, 0.034, 31};
    t.calibrated = true;
    EXPECT_NE(print(t).find("12.5 (3.4 %) GB/s on 1 thread"), std::string::npos) << print(t);
    EXPECT_NE(print(t).find("measured: median"), std::string::npos) << print(t);
    t.quick = true;
    EXPECT_NE(print(t).find("measured briefly"), std::string::npos) << print(t);
    EXPECT_EQ(target_from_json(to_json(t)), t);
}

TEST_F(TargetFile, CacheFolderFollowsTheEnvironment) {
    set("XDG_CACHE_HOME", "/x/cache");
    set("HOME", "/x/me");
    EXPECT_EQ(cache_folder(), "/x/cache/tilewright");
    set("XDG_CACHE_HOME", "relative");
    EXPECT_EQ(cache_folder(), "/x/me/.cache/tilewright") << "a relative path is to be ignored";
    set("XDG_CACHE_HOME", std::nullopt);
    EXPECT_EQ(cache_folder(), "/x/me/.cache/tilewright");
    set("HOME", "");
    EXPECT_EQ(cache_folder(), std::nullopt);
    EXPECT_THROW(save_target(distinct()), RuntimeError);
    EXPECT_EQ(load_target(), std::nullopt);
    EXPECT_EQ(current_target(), host_target());
}

TEST_F(TargetFile, WhatIsSavedIsLoaded) {
    set("XDG_CACHE_HOME", folder_ + "/new/folder");
    EXPECT_EQ(load_target(), std::nullopt);
    Target t = host_target();
    t.fma_gflops_1 = {123, 0.5, 9};
    t.calibrated = true;
    EXPECT_EQ(save_target(t), folder_ + "/new/folder/tilewright/target-" + target_key(t) + ".json");
    EXPECT_EQ(load_target(), t);
    EXPECT_EQ(current_target(), t);
}

TEST_F(TargetFile, ABrokenFileIsAsGoodAsNone) {
    const std::string path = folder_ + "/t.json";
    const Target t = distinct();
    std::string why;
    EXPECT_EQ(load_target(path, t, &why), std::nullopt);
    EXPECT_EQ(why, path + ": no such file");
    for (const std::string& text : {std::string(), std::string("{"), std::string("[]"), std::string("null"),
                                    std::string(1000, '['), std::string("\0\xff\x80", 3)}) {
        write(path, text);
        EXPECT_EQ(load_target(path, t, &why), std::nullopt);
        EXPECT_EQ(why.find(path + ": not a target description: "), 0u) << why;
    }
    save_target(t, path);
    EXPECT_EQ(load_target(path, t), t) << "a broken file is replaced";
}

TEST_F(TargetFile, AnotherMachinesFileIsNotTaken) {
    const std::string path = folder_ + "/t.json";
    save_target(distinct(), path);
    std::string why;
    EXPECT_EQ(load_target(path, generic_target(VectorIsa::avx2), &why), std::nullopt);
    EXPECT_EQ(why, path + ": describes another machine");
}

TEST_F(TargetFile, FailingToWriteNamesThePathAndLeavesNothing) {
    write(folder_ + "/file", "x");
    try {
        save_target(distinct(), folder_ + "/file/t.json");
        FAIL() << "written below a file";
    } catch (const RuntimeError& error) {
        EXPECT_NE(std::string(error.what()).find(folder_ + "/file"), std::string::npos) << error.what();
    }
    fs::create_directory(folder_ + "/t.json");
    EXPECT_THROW(save_target(distinct(), folder_ + "/t.json"), RuntimeError) << "a folder cannot be replaced by a file";
    for (const auto& entry : fs::directory_iterator(folder_)) {
        EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
    }
}

TEST_F(TargetFile, ALimitOnFileSizesEndsNothing) {
    const std::string path = folder_ + "/t.json";
    const pid_t child = ::fork();
    if (child == 0) {
        const rlimit none{0, 0}, small{100, 100};
        ::setrlimit(RLIMIT_CORE, &none);
        ::setrlimit(RLIMIT_FSIZE, &small);
        try {
            save_target(distinct(), path);
        } catch (const RuntimeError& e) {
            ::_exit(std::string(e.what()).find("File too large") != std::string::npos ? 0 : 1);
        }
        ::_exit(2);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "exit status or signal";
    EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(TargetFile, IsTakenFromItsUserOnly) {
    const Target t = distinct();
    const std::string path = folder_ + "/t.json";
    std::string why;
    save_target(t, path);
    fs::permissions(path, fs::perms::group_write, fs::perm_options::add);
    EXPECT_EQ(load_target(path, t, &why), std::nullopt);
    EXPECT_EQ(why, path + ": others may write to it");
    fs::permissions(path, fs::perms::group_write, fs::perm_options::remove);
    EXPECT_EQ(load_target(path, t), t);
    fs::resize_file(path, uintmax_t{64} << 30);
    EXPECT_EQ(load_target(path, t, &why), std::nullopt);
    EXPECT_EQ(why, path + ": it has 68719476736 bytes, more than 1048576");
    fs::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    EXPECT_EQ(load_target(path, t, &why), std::nullopt);
    EXPECT_EQ(why, path + ": it is no regular file");
}

TEST_F(TargetFile, ReadersNeverSeeAPart) {
    const std::string path = folder_ + "/t.json";
    const Target t = distinct();
    save_target(t, path);
    std::atomic<bool> stop{false};
    std::thread writers[2];
    for (std::thread& w : writers) {
        w = std::thread([&] {
            while (!stop) save_target(t, path);
        });
    }
    int seen = 0;
    for (int i = 0; i < 300; ++i) seen += load_target(path, t) == t ? 1 : 0;
    stop = true;
    for (std::thread& w : writers) w.join();
    EXPECT_EQ(seen, 300);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace tilewright
