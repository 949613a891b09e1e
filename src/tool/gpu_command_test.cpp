// --target cuda, as documented in the --help of dump, run and verify.

#include <gmock/gmock.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "onnx/onnx_pb.h"

#include "cost/gpu_target_file.h"
#include "tool/tool_runner_test.h"

namespace tilewright::tool_test {
namespace {

using namespace import_test;
using testing::AllOf;
using testing::HasSubstr;

class GpuCommand : public testing::Test {
  protected:
    /// y = Relu(x a), x: [batch, 16].
    GpuCommand() {
        onnx::ModelProto m = new_model();
        onnx::GraphProto& g = *m.mutable_graph();
        add_input(g, "x", {1, 16});
        g.mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_param(
            "batch");
        add_input(g, "a", {16, 24});
        add_node(g, "MatMul", {"x", "a"}, {"c"});
        add_node(g, "Relu", {"c"}, {"y"});
        add_output(g, "y");
        for (onnx::ValueInfoProto& o : *g.mutable_output()) o.mutable_type()->mutable_tensor_type()->clear_shape();
        place_.write("model.onnx", m);
    }
    Workplace place_;
};

TEST_F(GpuCommand, dump_shows_the_text_of_kernels) {
    const Result r = place_.run({"dump", "model.onnx", "--stage", "cuda", "--precision", "bf16"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out,
                AllOf(HasSubstr("// kernel 0"), HasSubstr("TW_KERNEL(kernel_0"), HasSubstr("tw::multiply_bf16(")));
    const Result tiles = place_.run({"dump", "model.onnx", "--stage", "tiles", "--target", "cuda:sm_80"});
    EXPECT_THAT(tiles.out, HasSubstr("load 0 access 0"));
    EXPECT_THAT(place_.run({"dump", "model.onnx", "--stage", "asm", "--target", "cuda"}).err,
                HasSubstr("stage 'asm' is there of models for a CPU"));
}

TEST_F(GpuCommand, explain_shows_the_plan_for_a_gpu_that_is_not_there) {
    const Result r = place_.run({"explain", "model.onnx", "--target", "cuda:sm_90a", "--precision", "tf32", "--dim",
                                 "batch=4096", "--json", "plan.json", "--html", "plan.html"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, AllOf(HasSubstr("a GPU, greedy orchestration"),
                             HasSubstr("assumed rates of h200 (bench_probe measures them)")));
    const auto plan = nlohmann::json::parse(place_.read("plan.json"));
    EXPECT_EQ(plan["machine"], "h200");
    EXPECT_EQ(plan["kernels"].size(), 1);
    EXPECT_DOUBLE_EQ(plan["launch_us"].get<double>(), h200().rates.launch_us);
    EXPECT_DOUBLE_EQ(plan["roofline"]["gflops"].get<double>(), h200().rates.group_tf32_gflops);
    EXPECT_EQ(plan["roofline"]["levels"].size(), 2) << "L2 and memory";
    const double us = plan["kernels"][0]["estimate_us"];
    EXPECT_GE(us, plan["kernels"][0]["limit_us"].get<double>());
    EXPECT_NEAR(plan["plan_ms"].get<double>(), (us + h200().rates.launch_us) * 1e-3, 1e-9);
    EXPECT_EQ(plan["greedy_ms"], plan["plan_ms"]) << "the plan it is compared with is for the GPU too";
    EXPECT_THAT(place_.read("plan.html"), HasSubstr("TW_KERNEL(kernel_0"));
    // Another GPU has other rates.
    GpuTarget slow = h200();
    slow.name = "a slow card";
    slow.rates.memory_gbps /= 5;
    slow.rates.cache_bytes /= 5;
    place_.folder.write("slow.json", to_json(slow));
    EXPECT_EQ(
        place_
            .run({"explain", "model.onnx", "--target", "slow.json", "--dim", "batch=4096", "--json", "slow_plan.json"})
            .status,
        0);
    const auto slower = nlohmann::json::parse(place_.read("slow_plan.json"));
    EXPECT_EQ(slower["machine"], "a slow card");
    EXPECT_GT(slower["plan_ms"].get<double>(), 1.5 * plan["plan_ms"].get<double>());
    EXPECT_THAT(place_.run({"explain", "model.onnx", "--target", "cuda", "--time", "1"}).err,
                HasSubstr("plans for a GPU are not run"));
}

TEST_F(GpuCommand, verify_runs_the_kernels_on_this_cpu_and_prints_the_error) {
    const Result r = place_.run({"verify", "model.onnx", "--target", "cuda:sm_80", "--lockstep", "--dim", "batch=20"});
    EXPECT_EQ(r.status, 0) << r.out << r.err;
    EXPECT_THAT(r.out, AllOf(HasSubstr("largest difference"), HasSubstr("verified"),
                             HasSubstr("error against float64, products in f32: largest"),
                             HasSubstr("of the largest magnitude; 0.0001 is allowed")));
    // The tolerance depends on the precision to which operands are rounded.
    const Result tf32 = place_.run({"verify", "model.onnx", "--target", "cuda", "--precision", "tf32", "--lockstep",
                                    "--dim", "batch=20", "--json", "tf32.json"});
    EXPECT_EQ(tf32.status, 0) << tf32.out;
    EXPECT_THAT(tf32.out, AllOf(HasSubstr("products in tf32"), HasSubstr("0.0099 is allowed")));
    EXPECT_THAT(place_.read("tf32.json"), AllOf(HasSubstr("\"precision\": \"tf32\""), HasSubstr("\"rms\": ")));
    const Result rounded = place_.run({"verify", "model.onnx", "--target", "cuda", "--precision", "bf16", "--lockstep",
                                       "--dim", "batch=20", "--max-relative", "1e-7"});
    EXPECT_EQ(rounded.status, 1) << rounded.out;  // bf16 has two decimal digits
    EXPECT_EQ(place_.run({"verify", "model.onnx", "--lockstep"}).status, 2);
}

TEST_F(GpuCommand, run_reports_a_missing_gpu) {
    const Result r = place_.run({"run", "model.onnx", "--target", "cuda:sm_80"});
    if (r.status == 0) GTEST_SKIP() << "there is a GPU";
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, AllOf(HasSubstr("model.onnx was compiled for cuda:sm_80 (1 kernels, "),
                             HasSubstr("), but cannot run here: no CUDA driver"), HasSubstr("nvidia-smi")));
    EXPECT_EQ(place_.run({"run", "model.onnx", "--precision", "tf32"}).status, 2);
    EXPECT_THAT(place_.run({"bench", "model.onnx", "--target", "cuda"}).err, HasSubstr("cannot run here:"));
    const Result measured = place_.run({"bench", "model.onnx", "--target", "cuda", "--measure", "--dim", "batch=8"});
    EXPECT_EQ(measured.status, 1);
    EXPECT_THAT(measured.err, HasSubstr("no CUDA driver"));
}

#ifdef TW_FAKE
/// The tool with a fake driver and compiler: kernels are loaded, and compute nothing.
class FakeGpuCommand : public GpuCommand {
  protected:
    using Environment = std::vector<std::pair<std::string, std::string>>;
    Result run(const std::vector<std::string>& arguments, Environment environment = {}) {
        environment.emplace_back("LD_LIBRARY_PATH", TW_FAKE ":" TW_FAKE "/nvrtc");
        environment.emplace_back("XDG_CACHE_HOME", place_ / "cache");
        std::map<std::string, std::optional<std::string>> before;
        for (const auto& [name, value] : environment) {
            const char* was = std::getenv(name.c_str());
            before[name] = was == nullptr ? std::nullopt : std::optional<std::string>(was);
            setenv(name.c_str(), value.c_str(), 1);
        }
        const Result r = place_.run(arguments);
        for (const auto& [name, value] : before)
            value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
        return r;
    }
};

TEST_F(FakeGpuCommand, runs_with_a_driver_and_caches_the_code_of_kernels) {
    const Result r = run({"bench", "model.onnx", "--target", "cuda", "--dim", "batch=4", "--iterations", "5"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(run({"run", "model.onnx", "--target", "cuda", "--dim", "batch=4"}).status, 0);
    EXPECT_TRUE(place_.exists("cache/tilewright/code"));
    // The outputs are zeros instead of the model's results, and verify reports that.
    EXPECT_EQ(run({"verify", "model.onnx", "--target", "cuda", "--dim", "batch=4"}).status, 1);
}

TEST_F(FakeGpuCommand, old_and_other_gpus_are_refused) {
    EXPECT_THAT(run({"run", "model.onnx", "--target", "cuda"}, {{"TILEWRIGHT_FAKE_CAPABILITY", "75"}}).err,
                AllOf(HasSubstr("was compiled for cuda (1 kernels, whose machine code is kept), but cannot run here:"),
                      HasSubstr("has compute capability 7.5: kernels are made for 8.0 (Ampere) and newer")));
    EXPECT_TRUE(place_.exists("cache/tilewright/code"));
    // A product that uses instructions of sm_90a.
    onnx::ModelProto m = new_model();
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {512, 1024});
    add_input(g, "a", {1024, 512});
    add_node(g, "MatMul", {"x", "a"}, {"y"});
    add_output(g, "y");
    for (onnx::ValueInfoProto& o : *g.mutable_output()) o.mutable_type()->mutable_tensor_type()->clear_shape();
    place_.write("large.onnx", m);
    const std::vector<std::string> words = {"run", "large.onnx", "--precision", "tf32", "--target"};
    const auto with = [&](const char* target) {
        std::vector<std::string> all = words;
        all.emplace_back(target);
        return all;
    };
    EXPECT_THAT(
        run(with("cuda:sm_90a"), {{"TILEWRIGHT_FAKE_CAPABILITY", "80"}}).err,
        AllOf(HasSubstr("compiled for sm_90a"), HasSubstr("compile it for that GPU, with --target cuda there")));
    EXPECT_EQ(run(with("cuda:sm_80"), {{"TILEWRIGHT_FAKE_CAPABILITY", "80"}}).status, 0);
    // What the driver says decides: instructions, shared memory.
    for (const char* capability : {"80", "86", "89", "90", "100", "120"}) {
        const Result r = run(with("cuda"), {{"TILEWRIGHT_FAKE_CAPABILITY", capability}});
        EXPECT_EQ(r.status, 0) << capability << ": " << r.err;
    }
}

TEST_F(FakeGpuCommand, info_says_where_the_rates_of_the_gpu_come_from) {
    const auto info = [&] { return run({"info", "--target", "cuda", "--json", "gpu.json"}); };
    const Result before = info();
    EXPECT_EQ(before.status, 0) << before.err;
    EXPECT_THAT(before.out, AllOf(HasSubstr("no GPU (dry run), sm_90, 132 multiprocessors"),
                                  HasSubstr("memory_gbps             4917 GB/s            assumed: the data sheet's"),
                                  HasSubstr("rates     assumed; bench_probe measures them and keeps them in " +
                                            (place_ / "cache/tilewright/gpu-"))));
    // What bench_probe writes.
    GpuTarget gpu = gpu_target_from_json(place_.read("gpu.json"));
    EXPECT_EQ(gpu.driver, 13000);
    gpu.measured = true;
    gpu.rates.memory_gbps = 3068;
    const std::string name = "cache/tilewright/gpu-" + target_key(gpu) + ".json";
    run({"bench", "model.onnx", "--target", "cuda", "--dim", "batch=4", "--iterations", "2"});  // makes the folder
    place_.folder.write(name, to_json(gpu));
    EXPECT_THAT(info().out, AllOf(HasSubstr("memory_gbps             3068 GB/s            measured by bench_probe"),
                                  HasSubstr("rates     measured on this device")));
    // A damaged file is named, here and where a model is compiled; the rates are then assumed.
    place_.folder.write(name, to_json(gpu).substr(0, 300));
    EXPECT_THAT(info().out,
                AllOf(HasSubstr("memory_gbps             4917"), HasSubstr("rates     assumed; not used is "),
                      HasSubstr(target_key(gpu) + ".json: not a description of a GPU: ")));
    EXPECT_THAT(run({"run", "model.onnx", "--target", "cuda", "--dim", "batch=4"}).err,
                HasSubstr("warning: the GPU's rates are assumed: "));
    // The file describes the GPU on any machine.
    gpu.name = "a card";
    gpu.block_shared_bytes = 99 << 10;
    place_.folder.write("card.json", to_json(gpu));
    EXPECT_THAT(place_.run({"info", "--target", "card.json"}).out,
                AllOf(HasSubstr("a card"), HasSubstr("99 KiB"), HasSubstr("3068 GB/s            measured by")));
    EXPECT_EQ(place_.run({"dump", "model.onnx", "--stage", "tiles", "--target", "card.json"}).status, 0);
    place_.folder.write("card.json", "{}");
    EXPECT_THAT(place_.run({"info", "--target", "card.json"}).err, HasSubstr("card.json: not a description of a GPU"));
    EXPECT_EQ(place_.run({"info", "--target", "none.json"}).status, 2);
    EXPECT_EQ(place_.run({"info", "--target", "cuda:sm_70"}).status, 2);
    EXPECT_EQ(place_.run({"info", "--target", "cuda", "--calibrate"}).status, 2);
}

TEST_F(FakeGpuCommand, measured_times_are_kept_for_the_device) {
    onnx::ModelProto m = new_model();
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {64, 64});
    add_input(g, "a", {64, 64});
    add_node(g, "MatMul", {"x", "a"}, {"y"});
    add_output(g, "y");
    for (onnx::ValueInfoProto& o : *g.mutable_output()) o.mutable_type()->mutable_tensor_type()->clear_shape();
    place_.write("product.onnx", m);
    const Result r = run({"run", "product.onnx", "--target", "cuda", "--precision", "tf32", "--measure", "--database",
                          place_ / "tuning.db"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(run({"info", "--target", "cuda", "--json", "gpu.json"}).status, 0);
    const std::string key = target_key(gpu_target_from_json(place_.read("gpu.json")));
    const Result list = place_.run({"db", "list", "--db", place_ / "tuning.db", "--target", key});
    EXPECT_THAT(list.out, AllOf(HasSubstr("graph precision=tf32 code="), HasSubstr(key))) << list.err;
}

TEST_F(FakeGpuCommand, exceeded_limits_are_reported_with_the_limit) {
    const Result r =
        run({"run", "model.onnx", "--target", "cuda", "--dim", "batch=100000"}, {{"TILEWRIGHT_FAKE_BYTES", "100000"}});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err,
                testing::ContainsRegex("error: .*out of memory on 'no GPU [(]dry run[)]': what the model computes "
                                       "on the way needs [0-9]+ bytes, and [0-9]+ of its 100000 are free"));
}
#endif

}  // namespace
}  // namespace tilewright::tool_test
