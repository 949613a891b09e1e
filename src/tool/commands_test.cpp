// Every command, used as documented in its --help.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "cost/target.h"
#include "driver/commands/common.h"
#include "driver/npy.h"
#include "driver/npz.h"
#include "onnx/onnx_pb.h"
#include "tilewright/tilewright.h"
#include "tool/tool_runner_test.h"
#include "tune/boosted_trees.h"

namespace tilewright::tool_test {
namespace {

using namespace import_test;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;
using Json = nlohmann::json;
namespace fs = std::filesystem;

/// y = Relu(x) and z = x + x, of shape [batch, 3].
onnx::ModelProto two_outputs() {
    onnx::ModelProto m = new_model();
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {1, 3});
    g.mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_param("batch");
    add_node(g, "Relu", {"x"}, {"y"});
    add_node(g, "Add", {"x", "x"}, {"scope/z"});
    add_output(g, "y");
    add_output(g, "scope/z");
    for (onnx::ValueInfoProto& o : *g.mutable_output()) o.mutable_type()->mutable_tensor_type()->clear_shape();
    return m;
}

const Tensor kX = Tensor::of<float>(DType::F32, {2, 3}, {-1, 2, -3, 4, -5, 6});
const Tensor kY = Tensor::of<float>(DType::F32, {2, 3}, {0, 2, 0, 4, 0, 6});
const Tensor kZ = Tensor::of<float>(DType::F32, {2, 3}, {-2, 4, -6, 8, -10, 12});

class Tool : public testing::Test {
  protected:
    Tool() {
        place.write("model.onnx", two_outputs());
        save_npy(place / "x.npy", kX);
    }
    /// A test data set for two_outputs.
    std::string data_set(const std::string& name, const Tensor& z) const {
        fs::create_directories(place / name);
        save_tensor_pb(place / (name + "/input_0.pb"), {"x", kX});
        save_tensor_pb(place / (name + "/output_0.pb"), {"y", kY});
        save_tensor_pb(place / (name + "/output_1.pb"), {"z", z});
        return name;
    }
    Json json(const std::string& name) const { return Json::parse(place.read(name)); }

    Workplace place;
};

TEST_F(Tool, TakesOperatorsOfModelsFromFunctionLibraries) {
    onnx::ModelProto model = new_model(), library;
    onnx::GraphProto& g = *model.mutable_graph();
    add_input(g, "x", {2, 3});
    add_node(g, "Twice", {"x"}, {"y"}, "call").set_domain("local");
    add_output(g, "y", {2, 3});
    place.write("calls.onnx", model);
    add_node(add_function(library, "local", "Twice", {"v"}, {"r"}), "Add", {"v", "v"}, {"r"}, "sum");
    place.write("lib.onnx", library);
    const std::vector<std::string> with = {"calls.onnx", "--functions", "lib.onnx"};
    const auto run = [&](std::vector<std::string> command, const std::vector<std::string>& more = {}) {
        command.insert(command.end(), with.begin(), with.end());
        command.insert(command.end(), more.begin(), more.end());
        const Result result = place.run(command);
        EXPECT_EQ(result.status, 0) << command[0] << ": " << result.err;
        return result.out;
    };
    run({"run"}, {"--input", "x=x.npy", "--output-dir", "out"});
    EXPECT_EQ(load_npy(place / "out/y.npy"), Tensor::of<float>(DType::F32, {2, 3}, {-2, 4, -6, 8, -10, 12}));
    EXPECT_THAT(run({"check"}), HasSubstr("every node is supported"));
    EXPECT_THAT(run({"dump", "--stage", "graph"}), HasSubstr("Add@13(x, x)  # call/sum"));
    run({"verify"});
    run({"compile"}, {"-o", "calls.so"});
    EXPECT_EQ(place.run({"run", "calls.so", "--input", "x=x.npy"}).status, 0);
    EXPECT_THAT(place.run({"run", "calls.onnx"}).err,
                HasSubstr("uses the operator set 'local', which the model does not"));
    EXPECT_THAT(place.run({"run", "calls.onnx", "--functions", "none.onnx"}).err, HasSubstr("cannot open none.onnx"));
    EXPECT_THAT(place.run({"run", "calls.onnx", "--functions", "model.onnx"}).err,
                HasSubstr("error: model.onnx: the file defines no functions"));
}

TEST_F(Tool, ShowsHelpWithExamplesOfEveryCommand) {
    const Result all = place.run({"--help"});
    EXPECT_EQ(all.status, 0);
    for (const char* command : {"run", "bench", "compile", "inspect", "explain", "op", "verify", "bisect", "check",
                                "dump", "conformance", "zoo", "info"}) {
        EXPECT_THAT(all.out, HasSubstr(command));
        const Result one = place.run({command, "--help"});
        EXPECT_EQ(one.status, 0) << command;
        EXPECT_THAT(one.out, HasSubstr("Examples:\n  tilewright " + std::string(command))) << command;
    }
    EXPECT_EQ(place.run({"--version"}).out, std::string(TILEWRIGHT_VERSION) + "\n");
}

TEST_F(Tool, ExitsWithStatusTwoOnAWrongCommandLine) {
    for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
             {},
             {"rum", "model.onnx"},
             {"run"},
             {"run", "model.onnx", "--no-such"},
             {"run", "model.onnx", "--threads", "0"},
             {"run", "model.onnx", "--threads", "many"},
             {"run", "model.onnx", "--isa", "mmx"},
             {"run", "model.onnx", "--dim", "batch"},
             {"run", "model.onnx", "--dim", "batch=-1"},
             {"run", "model.onnx", "--dim", "batch=2x"},
             {"run", "model.onnx", "--input", "x=x.npy", "--data", "set"},
             {"bench", "model.onnx", "--iterations", "0"},
             {"dump", "model.onnx", "--stage", "soup"},
             {"dump", "model.onnx", "--texts", "texts"},
             {"dump", "model.onnx", "--target-file", "machine.json", "--measure"},
             {"dump", "model.onnx", "--target-file", "machine.json", "--layouts", "joint"},
             {"run", "model.onnx", "--layouts", "best"},
             {"run", "model.onnx", "--precision", "bf8"},
             {"run", "model.onnx", "--max-error", "0.1"},
             {"run", "model.onnx", "--precision", "bf16", "--max-error", "0"},
             {"run", "model.onnx", "--keep-f32", "*"},
             {"bisect", "model.onnx", "--precision", "auto"},
             {"op", "gemm m=8 n=16 k=8", "--save-only"},
             {"verify", "model.onnx", "--rtol", "1e-3", "--max-relative", "1e-3"},
             {"zoo", "mlp", "--set", "batch"},
             {"conformance"}}) {
        SCOPED_TRACE(testing::PrintToString(arguments));
        const Result r = place.run(arguments);
        EXPECT_EQ(r.status, 2);
        EXPECT_THAT(r.err, AllOf(StartsWith("error: "), HasSubstr("\nhint: ")));
        EXPECT_EQ(r.out, "");
    }
}

TEST_F(Tool, RunsOnArraysAndWritesArrays) {
    const Result r = place.run({"run", "--input", "x=x.npy", "model.onnx", "--output-dir", "out", "--output-npz",
                                "out.npz", "--json", "run.json", "--threads", "2"});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(load_npy(place / "out/y.npy"), kY);
    EXPECT_EQ(load_npy(place / "out/scope_z.npy"), kZ);
    const std::vector<NamedTensor> arrays = load_npz(place / "out.npz");
    ASSERT_EQ(arrays.size(), 2u);
    EXPECT_EQ(arrays[1].name, "scope/z");
    EXPECT_EQ(arrays[1].value, kZ);
    EXPECT_THAT(r.out, HasSubstr("output 'y' f32[2, 3]: min 0, mean 2, max 6 -> out/y.npy\n"));
    const Json j = json("run.json");
    EXPECT_EQ(j["outputs"][1]["name"], "scope/z");
    EXPECT_EQ(j["outputs"][1]["shape"], (Json{2, 3}));
    EXPECT_EQ(j["outputs"][1]["max"], 12);
    EXPECT_EQ(r.err, "") << "standard error is for errors when it is no terminal";
}

TEST_F(Tool, RefusesInconsistentSizes) {
    onnx::ModelProto m = new_model();
    onnx::GraphProto& g = *m.mutable_graph();
    for (const char* name : {"a", "b"}) {
        add_input(g, name, {1, 1});
        auto* shape = g.mutable_input(g.input_size() - 1)->mutable_type()->mutable_tensor_type()->mutable_shape();
        for (int d = 0; d < 2; ++d) shape->mutable_dim(d)->set_dim_param(std::string(name) + std::to_string(d));
    }
    add_node(g, "MatMul", {"a", "b"}, {"y"});
    add_output(g, "y");
    place.write("product.onnx", m);
    save_npy(place / "b.npy", Tensor(DType::F32, {4, 5}));
    const Result misfit = place.run({"run", "product.onnx", "--input", "a=x.npy", "--input", "b=b.npy"});
    EXPECT_EQ(misfit.status, 1);
    EXPECT_THAT(misfit.err, AllOf(StartsWith("error: "), HasSubstr("(MatMul, opset "),
                                  HasSubstr("): dimensions a1 = 3 and b0 = 4 differ\n")));
    save_npy(place / "b.npy", Tensor(DType::F32, {3, 5}));
    const Result fit = place.run({"run", "product.onnx", "--input", "a=x.npy", "--input", "b=b.npy"});
    EXPECT_EQ(fit.status, 0) << fit.err;
    EXPECT_THAT(fit.out, HasSubstr("f32[2, 5]"));
}

TEST_F(Tool, AcceptsInputsOfEveryKind) {
    save_npz(place / "in.npz", {{"x", kX}});
    save_tensor_pb(place / "x.pb", {"", kX});
    for (const char* input : {"x=x.npy", "x=x.pb", "in.npz"}) {
        ASSERT_EQ(place.run({"run", "model.onnx", "--input", input, "--output-dir", "out"}).status, 0) << input;
        EXPECT_EQ(load_npy(place / "out/y.npy"), kY) << input;
        fs::remove_all(place / "out");
    }
    const auto random = [&](const std::string& seed) {
        EXPECT_EQ(place
                      .run({"run", "model.onnx", "--input", "x=random", "--dim", "batch=4", "--seed", seed,
                            "--output-dir", "out"})
                      .status,
                  0);
        return load_npy(place / "out/scope_z.npy");
    };
    const Tensor one = random("1");
    EXPECT_EQ(one.shape(), (Shape{4, 3}));
    EXPECT_EQ(random("1"), one);
    EXPECT_FALSE(random("2") == one);
}

TEST_F(Tool, ComparesWithATestDataSet) {
    Tensor wrong = Tensor::of<float>(DType::F32, {2, 3}, {-2, 4, -6, 8, -10, 12.5f});
    for (const char* command : {"run", "verify"}) {
        const Result good = place.run({command, "model.onnx", "--data", data_set("good", kZ), "--json", "a.json"});
        EXPECT_EQ(good.status, 0) << good.err;
        EXPECT_THAT(good.out, EndsWith("verified\n"));
        EXPECT_EQ(json("a.json")["ok"], true);
        const Result bad = place.run({command, "model.onnx", "--data", data_set("bad", wrong), "--json", "b.json"});
        EXPECT_EQ(bad.status, 1);
        EXPECT_THAT(bad.out, HasSubstr("output 'scope/z': element [1, 2] is 12, expected 12.5 (1 of 6 elements "
                                       "differ)\nMISMATCH\n"));
        EXPECT_THAT(bad.err, HasSubstr("hint: `tilewright bisect model.onnx`"));
        EXPECT_EQ(json("b.json")["comparison"][0]["ok"], true);
        EXPECT_EQ(json("b.json")["comparison"][1]["max_difference"], 0.5);
        EXPECT_EQ(place.run({command, "model.onnx", "--data", "bad", "--rtol", "0.1"}).status, 0);
        EXPECT_EQ(place.run({command, "model.onnx", "--data", "bad", "--max-relative", "0.05"}).status, 0);
    }
}

TEST_F(Tool, VerifiesAgainstTheInterpreter) {
    const Result r = place.run({"verify", "model.onnx", "--dim", "batch=5"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, AllOf(StartsWith("output 'y' agrees"),
                             HasSubstr("\nverified\nerror against float64, products in f32: largest ")));
    fs::create_directories(place / "empty");
    save_tensor_pb(place / "empty/input_0.pb", {"x", kX});
    const Result kernels = place.run({"verify", "model.onnx", "--kernels", "--dim", "batch=5"});
    EXPECT_EQ(kernels.status, 0) << kernels.err;
    EXPECT_THAT(kernels.out, testing::HasSubstr(" right, 0 wrong"));
    EXPECT_EQ(place.run({"verify", "model.onnx", "--kernels", "--dim", "batch=-5"}).status, 2);
    const Result where = place.run({"bench", "model.onnx", "--dim", "batch=5", "--iterations", "1", "--kernels", "3"});
    EXPECT_EQ(where.status, 0) << where.err;
    EXPECT_THAT(where.out, testing::HasSubstr("limit  computes"));
    const Result none = place.run({"verify", "model.onnx", "--data", "empty"});
    EXPECT_TRUE(refused(none));
    EXPECT_THAT(none.err, HasSubstr("no output_0.pb"));
}

TEST_F(Tool, VerifyAllowsForLowPrecisionTypes) {
    place.write("wide.onnx", two_outputs());
    onnx::ModelProto half = two_outputs();
    half.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
        onnx::TensorProto::FLOAT16);
    for (onnx::ValueInfoProto& o : *half.mutable_graph()->mutable_output())
        o.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT16);
    place.write("half.onnx", half);
    for (const auto& [model, allowed] : {std::pair("wide.onnx", 1e-4), std::pair("half.onnx", 1e-4 + 20 * 0x1p-11)}) {
        const Result r = place.run({"verify", model, "--json", "v.json"});
        EXPECT_EQ(r.status, 0) << r.out << r.err;
        EXPECT_DOUBLE_EQ(json("v.json")["allowed"].get<double>(), allowed) << model;
    }
}

TEST_F(Tool, VerifyReportsProductsInBf16) {
    // Where the CPU has no products of bf16, all are in f32.
    ASSERT_EQ(place.run({"zoo", "mlp", "-o", "mlp.onnx"}).status, 0);
    const bool bf16 = current_target().bf16_products();  // with measured rates, if there are any
    const auto verify = [&](std::vector<std::string> more) {
        more.insert(more.begin(), {"verify", "mlp.onnx", "--json", "v.json", "--no-calibrate"});
        const Result r = place.run(more);
        EXPECT_EQ(r.status, 0) << r.out << r.err;
        EXPECT_THAT(r.out,
                    HasSubstr("\nprecision " + json("v.json")["products"]["precision"].get<std::string>() + ": "));
        return json("v.json");
    };
    const Json all = verify({"--precision", "bf16"});
    EXPECT_EQ(all["products"]["precision"], bf16 ? "bf16" : "f32");
    EXPECT_EQ(all.contains("product_errors"), bf16);
    const double error = all["error"]["largest"].get<double>();
    EXPECT_EQ(error > 1e-4, bf16);
    const Json within = verify({"--precision", "bf16", "--max-error", fmt::format("{}", error / 2)});
    EXPECT_EQ(within["products"]["max_error"], error / 2);
    EXPECT_LE(within["error"]["largest"].get<double>(), (bf16 ? error / 2 : error) + 1e-5);
    const Json named = verify({"--precision", "bf16", "--keep-f32", "*"});
    EXPECT_EQ(named["products"]["rounded"], 0);
    EXPECT_LT(named["error"]["largest"].get<double>(), 1e-4);
    verify({"--precision", "auto"});
    const Result unknown = place.run({"verify", "mlp.onnx", "--precision", "bf16", "--keep-f32", "/no/such/*"});
    EXPECT_TRUE(refused(unknown));
    EXPECT_THAT(unknown.err, HasSubstr("matches '/no/such/*'"));
    const Result explained = place.run({"explain", "mlp.onnx", "--precision", "auto", "--json", "e.json"});
    EXPECT_EQ(explained.status, 0) << explained.err;
    EXPECT_THAT(explained.out, HasSubstr("\nprecision "));
    EXPECT_TRUE(json("e.json")["precision"]["in_f32"].is_array());
}

TEST_F(Tool, BenchPrintsItsFigures) {
    const Result r = place.run({"bench", "model.onnx", "--iterations", "7", "--warmup", "1", "--threads", "1", "--json",
                                "bench.json", "--trace", "trace.json"});
    ASSERT_EQ(r.status, 0) << r.err;
    const Json j = json("bench.json");
    for (const char* key : {"compile_ms", "load_ms", "first_run_ms", "gflops", "peak_share", "peak_rss_mb"})
        EXPECT_TRUE(j[key].is_number()) << key;
    const Json& l = j["latency_ms"];
    EXPECT_GT(l["min"].get<double>(), 0);
    EXPECT_LE(l["min"], l["median"]);
    EXPECT_LE(l["median"], l["p90"]);
    EXPECT_LE(l["p90"], l["p99"]);
    EXPECT_EQ(j["threads"], 1);
    EXPECT_EQ(j["iterations"], 7);
    EXPECT_GE(j["kernels"], 1);
    EXPECT_GT(j["peak_rss_mb"], 1.0);
    const Json trace = json("trace.json");
    ASSERT_FALSE(trace["traceEvents"].empty());
    EXPECT_EQ(trace["traceEvents"][0]["ph"], "X");
}

TEST_F(Tool, BenchGeneratesWithAKvCache) {
    ASSERT_EQ(place.run({"zoo", "gpt2_tiny_decoder", "-o", "decoder.onnx"}).status, 0);
    const auto bench = [&](const std::string& model) {
        const Result r = place.run({"bench", model, "--decode", "9", "--prompt", "5", "--threads", "1", "--kernels",
                                    "2", "--json", "decode.json"});
        EXPECT_EQ(r.status, 0) << r.err;
        EXPECT_THAT(r.out, AllOf(HasSubstr("prompt  5 tokens"), HasSubstr("decode  8 tokens"), HasSubstr("KV cache")));
        return json("decode.json");
    };
    const Json j = bench("decoder.onnx");
    EXPECT_EQ(j["tokens"].size(), 9u);
    for (const char* key : {"prompt_tokens_per_s", "decode_tokens_per_s", "bytes_per_token", "gbps", "read_gbps"})
        EXPECT_GT(j[key].get<double>(), 0) << key;
    EXPECT_EQ(j["by_kernel"][0]["calls"].is_number(), true);
    ASSERT_EQ(place.run({"compile", "decoder.onnx", "--kv-cache", "--threads", "1", "-o", "decoder.so"}).status, 0);
    EXPECT_EQ(bench("decoder.so")["tokens"], j["tokens"]);
    const Result verified = place.run({"verify", "decoder.onnx", "--kv-cache", "--dim", "past_sequence_length=3"});
    EXPECT_EQ(verified.status, 0) << verified.out << verified.err;
    EXPECT_THAT(place.run({"bench", "model.onnx", "--decode", "4"}).err, HasSubstr("no input that an output extends"));
    ASSERT_EQ(place.run({"compile", "decoder.onnx", "-o", "plain.so"}).status, 0);
    EXPECT_THAT(place.run({"bench", "plain.so", "--decode", "4"}).err, HasSubstr("compile it with --kv-cache"));
}

TEST_F(Tool, MeasuresTheKernelsOfOptimalPlansOnce) {
    const std::vector<std::string> command = {"dump",       "model.onnx", "--stage",  "plan",      "--orchestrate",
                                              "optimal",    "--profile",  "lazy",     "--threads", "1",
                                              "--progress", "--database", "tuning.db"};
    const Result first = place.run(command), second = place.run(command);
    ASSERT_EQ(first.status, 0) << first.err;
    EXPECT_THAT(first.out, HasSubstr("kernels measured (0 recalled)"));
    EXPECT_THAT(second.out, testing::Not(HasSubstr("(0 recalled)")));
    const Result greedy = place.run({"dump", "model.onnx", "--profile", "lazy"});
    EXPECT_EQ(greedy.status, 2);
    EXPECT_THAT(greedy.err, HasSubstr("--orchestrate optimal"));
}

TEST_F(Tool, TunesLayoutsTogetherWithLoops) {
    const std::string op = "conv2d c=32 h=14 o=32 kh=3 pad=1";
    const auto tuned = [&](const std::string& seconds) {
        return place.run({"op", op, "--layouts", "joint", "--layout-seconds", seconds, "--threads", "1", "--isa",
                          "avx2", "--no-run", "--database", "tuning.db"});
    };
    // Results are checked; what was measured is kept.
    const Result measured = tuned("60"), again = tuned("60"), estimated = tuned("0");
    for (const Result& r : {measured, again, estimated}) {
        EXPECT_EQ(r.status, 0) << r.err;
        EXPECT_THAT(r.out, HasSubstr("elements, error"));
        EXPECT_THAT(r.err, HasSubstr("note: layouts: 1 contractions, "));
    }
    EXPECT_THAT(estimated.err, HasSubstr(" 0 kernels measured"));
    EXPECT_THAT(measured.err, testing::Not(HasSubstr(" 0 kernels measured")));
    const auto decision = [](const std::string& note) { return note.substr(note.find(" s: ")); };
    EXPECT_EQ(decision(measured.err), decision(again.err)) << "measurements are recalled";
}

TEST_F(Tool, TunesLayoutsByReinforcementLearning) {
    if (!has_boosted_trees()) GTEST_SKIP() << "XGBoost is not installed";
    const std::vector<std::string> command = {"op",
                                              "conv2d c=16 h=10 o=16 kh=3 pad=1",
                                              "--layouts",
                                              "ppo",
                                              "--threads",
                                              "1",
                                              "--layout-trials",
                                              "24",
                                              "--isa",
                                              "avx2",
                                              "--no-run",
                                              "--database",
                                              "tuning.db"};
    const Result first = place.run(command), again = place.run(command);
    for (const Result& r : {first, again}) {
        EXPECT_EQ(r.status, 0) << r.err;
        EXPECT_THAT(r.out, HasSubstr("elements, error"));
        EXPECT_THAT(r.err, HasSubstr("note: layouts: 1 contractions, "));
    }
    const auto decision = [](const std::string& note) { return note.substr(note.find(" s: ")); };
    EXPECT_EQ(decision(first.err), decision(again.err)) << "measurements are recalled";
}

/// After Ctrl-C or a kill, finished measurements are not repeated.
TEST_F(Tool, ResumesMeasurementsAfterAKill) {
    ASSERT_EQ(place.run({"zoo", "attention", "-o", "attention.onnx"}).status, 0);
    const std::vector<std::string> command = {"dump",       "attention.onnx", "--stage", "plan",      "--orchestrate",
                                              "optimal",    "--profile",      "full",    "--threads", "1",
                                              "--progress", "--database"};
    for (const int signal : {SIGINT, SIGKILL}) {
        std::vector<std::string> mine = command;
        mine.push_back(signal == SIGINT ? "stopped.db" : "killed.db");
        Limits limits;
        limits.seconds = 300;
        limits.signal_at = " s left";  // at least one candidate was measured
        limits.signal = signal;
        const Result stopped = place.run(mine, limits);
        if (signal == SIGINT) {
            EXPECT_EQ(stopped.status, 1) << stopped.err;
            EXPECT_THAT(stopped.err, AllOf(HasSubstr("error: interrupted; the "), HasSubstr("stopped.db")));
        } else {
            EXPECT_EQ(stopped.status, 128 + SIGKILL);
        }
        limits.signal_at.clear();
        const Result rest = place.run(mine, limits);
        EXPECT_EQ(rest.status, 0) << rest.err;
        EXPECT_THAT(rest.out, HasSubstr("kernels measured ("));
        EXPECT_THAT(rest.out, testing::Not(HasSubstr("(0 recalled)")));
    }
}

TEST_F(Tool, SaysWhereItCrashed) {
    ASSERT_EQ(place.run({"zoo", "attention", "-o", "attention.onnx"}).status, 0);
    Limits limits;
    limits.signal_at = "measuring";
    limits.signal = SIGSEGV;
    const Result r = place.run({"dump", "attention.onnx", "--stage", "plan", "--orchestrate", "optimal", "--profile",
                                "full", "--threads", "1", "--progress", "--database", "crashed.db"},
                               limits);
    EXPECT_EQ(r.status, 128 + SIGSEGV);
    if (std::string(TW_SANITIZE).empty()) {
        EXPECT_THAT(r.err, AllOf(HasSubstr("error: tilewright crashed"), HasSubstr("(+0x")));
    }
}

TEST_F(Tool, DumpsEveryStage) {
    for (const auto& [stage, word] :
         {std::pair("graph", "Relu"), std::pair("program", "max"), std::pair("plan", "Relu"),
          std::pair("tiles", "kernel 0"), std::pair("llvm", "define "), std::pair("asm", "ret"),
          std::pair("hashes", " calls 1 stages ")}) {
        const Result r = place.run({"dump", "model.onnx", "--stage", stage});
        EXPECT_EQ(r.status, 0) << stage << r.err;
        EXPECT_THAT(r.out, HasSubstr(word)) << stage;
    }
}

TEST_F(Tool, DumpsHashesForATargetFile) {
    ASSERT_EQ(place.run({"info", "--json", "machine.json"}).status, 0);
    const std::vector<std::string> command = {"dump",          "model.onnx",   "--stage",   "hashes",
                                              "--target-file", "machine.json", "--threads", "2"};
    std::vector<std::string> with_texts = command;
    with_texts.insert(with_texts.end(), {"--texts", "texts"});
    const Result r = place.run(with_texts);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(place.run(command).out, r.out);
    ASSERT_THAT(r.out, StartsWith("tiles "));
    EXPECT_TRUE(place.exists("texts/" + r.out.substr(6, 16) + ".txt"));
    EXPECT_TRUE(refused(place.run({"dump", "model.onnx", "--target-file", "none.json"})));
    EXPECT_TRUE(refused(place.run({"dump", "model.onnx", "--target-file", "model.onnx"})));
}

TEST_F(Tool, SavesOperatorsWithoutRunningThem) {
    const Result one = place.run({"op", "gemm m=8 n=16 k=8", "--save", "one.onnx", "--save-only"});
    EXPECT_EQ(one.out, "one.onnx gemm m=8 n=16 k=8\n");
    EXPECT_EQ(place.run({"check", "one.onnx"}).status, 0);
    const Result two = place.run({"op", "gemm m=8 n=16 k=8", "softmax m=4 n=4", "--save", "ops", "--save-only"});
    EXPECT_EQ(two.out, "ops/0.onnx gemm m=8 n=16 k=8\nops/1.onnx softmax m=4 n=4\n");
    EXPECT_EQ(place.run({"check", "ops/1.onnx"}).status, 0);
}

TEST_F(Tool, CheckListsEveryNodeThatCannotBeCompiled) {
    EXPECT_THAT(place.run({"check", "model.onnx"}).out, EndsWith("every node is supported\n"));
    onnx::ModelProto m = two_outputs();
    add_node(*m.mutable_graph(), "NoSuchOp", {"x"}, {"a"}, "first");
    add_node(*m.mutable_graph(), "MatMul", {"x"}, {"b"}, "second");
    add_node(*m.mutable_graph(), "NorThis", {"y"}, {"c"}, "third");
    for (const char* output : {"a", "b", "c"}) add_output(*m.mutable_graph(), output);
    place.write("bad.onnx", m);
    const Result r = place.run({"check", "bad.onnx", "--json", "check.json"});
    EXPECT_TRUE(refused(r));
    EXPECT_THAT(r.err, StartsWith("error: bad.onnx: 3 nodes cannot be compiled"));
    for (const char* name : {"node 'first': ai.onnx NoSuchOp, opset 13, inputs (f32[", "node 'second'", "node 'third'"})
        EXPECT_THAT(r.out, HasSubstr(name));
    const Json j = json("check.json");
    EXPECT_EQ(j["ok"], false);
    ASSERT_EQ(j["problems"].size(), 3u);
    EXPECT_EQ(j["problems"][0]["node"], "first");
    EXPECT_EQ(j["problems"][0]["unsupported"], true);
    EXPECT_EQ(j["problems"][1]["unsupported"], false);
    const Result run = place.run({"run", "bad.onnx", "--output-dir", "out"});
    EXPECT_TRUE(refused(run));
    EXPECT_FALSE(place.exists("out")) << "an artefact of a model that was refused";
}

TEST_F(Tool, ZooModelsRunAndEqualSeedsAreEqualFiles) {
    EXPECT_THAT(place.run({"zoo", "--list"}).out, HasSubstr("resnet18"));
    ASSERT_EQ(place.run({"zoo", "mlp", "-o", "a.onnx", "--set", "batch=2"}).status, 0);
    ASSERT_EQ(place.run({"zoo", "mlp", "-o", "b.onnx", "--set", "batch=2"}).status, 0);
    EXPECT_EQ(place.read("a.onnx"), place.read("b.onnx"));
    EXPECT_EQ(place.run({"verify", "a.onnx"}).status, 0);
    EXPECT_TRUE(refused(place.run({"zoo", "no_such_model"})));
    EXPECT_TRUE(refused(place.run({"zoo", "mlp", "--set", "no_such=1"})));
    EXPECT_TRUE(refused(place.run({"zoo", "mlp", "-o", "no/such/folder/m.onnx"})));
}

TEST_F(Tool, InfoDescribesTheMachine) {
    const Result r = place.run({"info", "--json", "info.json"});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out, "");
    EXPECT_TRUE(json("info.json").is_object());
}

TEST_F(Tool, FilesThatCannotBeWrittenAreErrors) {
    EXPECT_TRUE(refused(place.run({"run", "model.onnx", "--json", "no/such/folder/x.json"})));
    EXPECT_TRUE(refused(place.run({"run", "model.onnx", "--output-npz", "no/such/folder/x.npz"})));
    EXPECT_TRUE(refused(place.run({"run", "model.onnx", "--output-dir", "x.npy"}))) << "x.npy is a file";
    EXPECT_TRUE(refused(place.run({"run", "model.onnx", "--output-npz", "/dev/full"})));
}

// --- conformance

class Conformance : public Tool {
  protected:
    /// cases/NAME with the model and one data set.
    void add_case(const std::string& name, const onnx::ModelProto& model, const Tensor& z) const {
        fs::create_directories(place / ("cases/" + name));
        place.write("cases/" + name + "/model.onnx", model);
        data_set("cases/" + name + "/test_data_set_0", z);
    }
};

TEST_F(Conformance, CountsPassedFailedAndSkippedCases) {
    add_case("a_good", two_outputs(), kZ);
    add_case("b_wrong", two_outputs(), kX);
    onnx::ModelProto unknown = two_outputs();
    unknown.mutable_graph()->mutable_node(0)->set_op_type("NoSuchOp");
    add_case("c_unknown", unknown, kZ);
    add_case("d_damaged", two_outputs(), kZ);
    place.folder.write("cases/d_damaged/model.onnx", "\xff\xff");
    fs::create_directories(place / "cases/no_case");
    const Result r = place.run({"conformance", "cases", "--json", "results.json"});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.out, AllOf(StartsWith("PASS a_good\nFAIL b_wrong: output 1: element"),
                             HasSubstr("\nSKIP c_unknown: NoSuchOp (opset 13): "), HasSubstr("\nFAIL d_damaged: "),
                             EndsWith("\n1 passed, 2 failed, 1 skipped\n")));
    const Json j = json("results.json");
    EXPECT_EQ(j["passed"], 1);
    EXPECT_EQ(j["cases"][1]["name"], "b_wrong");
    EXPECT_EQ(j["cases"][1]["result"], "FAIL");
    EXPECT_EQ(place.run({"conformance", "cases/a_good/", "cases/c_unknown"}).status, 0)
        << "a skipped case is not a failure";
    EXPECT_TRUE(refused(place.run({"conformance", "cases/no_case"})));
    EXPECT_TRUE(refused(place.run({"conformance", "nowhere"})));
}

TEST_F(Conformance, AHangingCaseFailsWithoutTheOthers) {
    onnx::ModelProto endless = new_model();  // while true: v = -v
    onnx::GraphProto& g = *endless.mutable_graph();
    add_input(g, "x", {2, 3});
    add_input(g, "go_on", {}, 9);
    onnx::NodeProto& loop = add_node(g, "Loop", {"", "go_on", "x"}, {"y"});
    onnx::AttributeProto& a = add_attribute(loop, "body");
    a.set_type(onnx::AttributeProto::GRAPH);
    onnx::GraphProto& body = *a.mutable_g();
    add_input(body, "i", {}, 7);
    add_input(body, "go", {}, 9);
    add_input(body, "v", {2, 3});
    add_node(body, "Identity", {"go"}, {"go_out"});
    add_node(body, "Neg", {"v"}, {"w"});
    add_output(body, "go_out", {}, 9);
    add_output(body, "w", {2, 3});
    add_output(g, "y", {2, 3});
    add_case("a_endless", endless, kZ);
    save_tensor_pb(place / "cases/a_endless/test_data_set_0/input_1.pb", {"", Tensor::of<int>(DType::Bool, {}, {1})});
    add_case("b_good", two_outputs(), kZ);
    const Result r = place.run({"conformance", "cases", "--timeout", "2"}, {30});
    EXPECT_THAT(r.out, HasSubstr("FAIL a_endless: not done after 2 s\nPASS b_good\n"));
}

TEST_F(Conformance, HasTolerancesByCase) {
    Tensor near = Tensor::of<float>(DType::F32, {2, 3}, {-2, 4, -6, 8, -10, 12.1f});
    add_case("a", two_outputs(), near);
    add_case("b", two_outputs(), near);
    EXPECT_THAT(place.run({"conformance", "cases"}).out, HasSubstr("0 passed, 2 failed"));
    EXPECT_THAT(place.run({"conformance", "cases", "--max-relative", "0.01"}).out, HasSubstr("2 passed, 0 failed"));
    EXPECT_THAT(place.run({"conformance", "cases", "--atol", "0.2"}).out, HasSubstr("2 passed, 0 failed"));
    place.folder.write("plain.tsv", "a\t0.01\n");
    EXPECT_THAT(place.run({"conformance", "cases", "--tolerances", "plain.tsv"}).out,
                AllOf(StartsWith("PASS a\nFAIL b"), HasSubstr("1 passed, 1 failed")));
    place.folder.write("table.tsv", "group\tname\ttol_rel_max\tx\nfp32\tb\t1e-2\tx\nfp32\ta\t1e-6\tx\n");
    EXPECT_THAT(place.run({"conformance", "cases", "--tolerances", "table.tsv"}).out,
                AllOf(StartsWith("FAIL a"), HasSubstr("PASS b\n")));
    for (const char* wrong : {"a\n", "a\tmuch\n", "a\t0\n", "a\t-1\n", "a\tnan\n"}) {
        place.folder.write("wrong.tsv", wrong);
        const Result r = place.run({"conformance", "cases", "--tolerances", "wrong.tsv"});
        EXPECT_TRUE(refused(r)) << wrong;
        EXPECT_THAT(r.err, HasSubstr("wrong.tsv:1: "));
    }
}

TEST_F(Conformance, AllowsForTheNoiseOfFourierTransforms) {
    onnx::ModelProto m = new_model(17);
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {1, 4, 1});
    add_node(g, "DFT", {"x"}, {"y"});
    add_output(g, "y", {1, 4, 2});
    fs::create_directories(place / "dft/test_data_set_0");
    place.write("dft/model.onnx", m);
    save_tensor_pb(place / "dft/test_data_set_0/input_0.pb",
                   {"x", Tensor::of<int>(DType::F32, {1, 4, 1}, {1, 1, 1, 1})});
    const auto with_noise = [&](float noise) {
        save_tensor_pb(place / "dft/test_data_set_0/output_0.pb",
                       {"y", Tensor::of<float>(DType::F32, {1, 4, 2}, {4, 0, noise, 0, 0, 0, 0, 0})});
        return place.run({"conformance", "dft"}).status;
    };
    EXPECT_EQ(with_noise(5e-7f), 0);
    EXPECT_EQ(with_noise(5e-6f), 1);
    EXPECT_THAT(place.run({"conformance", "--help"}).out, HasSubstr("DFT    --atol 1e-06: the stored outputs carry"));
}

// --- progress

/// The output of a child process on a terminal.
std::string on_terminal(const std::function<void()>& child) {
    int terminal = -1;
    const pid_t pid = forkpty(&terminal, nullptr, nullptr, nullptr);
    if (pid == 0) {
        child();
        _exit(0);
    }
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = ::read(terminal, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
    close(terminal);
    waitpid(pid, nullptr, 0);
    return text;
}

TEST(Progress, IsShownAfterASecondAndErasedAtTheEnd) {
    const auto work = [](int ms) {
        Progress progress("compiling m.onnx");
        progress.step("fission");
        std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    };
    EXPECT_EQ(on_terminal([&] { work(10); }), "");
    EXPECT_THAT(on_terminal([&] { work(1300); }),
                AllOf(StartsWith("\r\x1b[Kcompiling m.onnx: fission, 1 s"), EndsWith("\r\x1b[K")));
    EXPECT_EQ(on_terminal([&] {
                  const int nowhere = open("/dev/null", O_WRONLY);
                  dup2(nowhere, STDERR_FILENO);
                  work(1300);
              }),
              "")
        << "standard error is not a terminal";
}

}  // namespace
}  // namespace tilewright::tool_test
