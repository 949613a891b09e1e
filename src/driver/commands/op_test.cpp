// `tilewright op` as documented in its --help.

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "driver/commands.h"
#include "driver/files.h"
#include "driver/opspec/op_spec.h"
#include "graph/import.h"

namespace tilewright {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Json = nlohmann::json;

struct Result {
    int status = 0;
    std::string out, err;
};

class OpCommand : public testing::Test {
  protected:
    OpCommand() : folder_(std::filesystem::temp_directory_path() / ("tilewright_op_" + std::to_string(::getpid()))) {
        std::filesystem::create_directories(folder_);
    }
    ~OpCommand() override { std::filesystem::remove_all(folder_); }

    std::string file(const std::string& name) const { return (folder_ / name).string(); }

    /// Without calibration, which takes seconds.
    static Result run(std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), {"tilewright", "op", "--no-calibrate"});
        std::vector<const char*> argv;
        argv.reserve(arguments.size());
        for (const std::string& a : arguments) argv.push_back(a.c_str());
        testing::internal::CaptureStdout();
        testing::internal::CaptureStderr();
        Result r;
        r.status = run_command(static_cast<int>(argv.size()), argv.data());
        r.out = testing::internal::GetCapturedStdout();
        r.err = testing::internal::GetCapturedStderr();
        return r;
    }

    std::vector<Json> lines(const std::string& name) const {
        std::vector<Json> out;
        std::istringstream in(read_file(file(name)));
        for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
        return out;
    }

  private:
    std::filesystem::path folder_;
};

TEST_F(OpCommand, PrintsALineAndWritesAnObjectForEachOperator) {
    write_file(file("ops.txt"), {"# a file\nsoftmax m=8 n=16\n"});
    const Result r = run({"gemm m=16 n=24 k=32", "--batch", file("ops.txt"), "--iterations", "4", "--threads", "1",
                          "--json", file("out.jsonl")});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out,
                AllOf(HasSubstr("gemm m=16 n=24 k=32"), HasSubstr("softmax m=8 n=16"), HasSubstr("all 384 elements")));
    const std::vector<Json> all = lines("out.jsonl");
    ASSERT_EQ(all.size(), 2u);
    const Json& j = all[0];
    EXPECT_EQ(j["op"], "gemm m=16 n=24 k=32");
    EXPECT_EQ(j["scheduler"], "auto");
    EXPECT_EQ(j["ok"], true);
    EXPECT_GT(j["construct_ms"].get<double>(), 0);
    EXPECT_GT(j["estimate_ms"].get<double>(), 0);
    EXPECT_GT(j["measured_ms"].get<double>(), 0);
    EXPECT_GT(j["gflops"].get<double>(), 0);
    EXPECT_NEAR(j["limit_share"].get<double>(), j["limit_ms"].get<double>() / j["measured_ms"].get<double>(), 1e-9);
    EXPECT_THAT(j["schedule"].get<std::string>(), HasSubstr("kernel 0"));
    EXPECT_EQ(j["flops"], 2 * 16 * 24 * 32);
    EXPECT_EQ(j["bytes"], 4 * (16 * 32 + 32 * 24 + 16 * 24));
    EXPECT_EQ(j["runs"], 4);
    EXPECT_EQ(j["threads"], 1);
    EXPECT_EQ(j["checked"]["elements"], 16 * 24);
    EXPECT_EQ(j["inputs"], Json::parse(R"([{"name": "a", "dtype": "f32", "shape": [16, 32], "limit": 0}])"));
    EXPECT_EQ(all[1]["gflops"], 0) << "no products";
}

TEST_F(OpCommand, AcceptsEverySchedulerOfItsHelp) {
    const std::string help = run({"--help"}).out;
    for (const char* name : {"default", "tree", "gensor", "gensor-published", "mcfuser", "auto"}) {
        EXPECT_THAT(help, HasSubstr(std::string("  ") + name));
        const Result r = run({"gemm m=40 n=48 k=64", "attention heads=2 m=24 k=16", "--scheduler", name, "--no-run",
                              "--threads", "1", "--json", file("out.jsonl")});
        ASSERT_EQ(r.status, 0) << name << ": " << r.err;
        for (const Json& j : lines("out.jsonl")) {
            EXPECT_EQ(j["scheduler"], name);
            EXPECT_EQ(j["ok"], true);
            EXPECT_EQ(j["checked"]["elements"], j["checked"]["of"]);
        }
    }
}

TEST_F(OpCommand, ComputesChainsInTheGivenOrderWithoutRewrites) {
    // A (B D) is a tenth of the work of (A B) D.
    const std::string chain = "chain m=256 n=128 k=16 h=16";
    const auto estimate = [&](std::vector<std::string> more) {
        std::vector<std::string> args{chain, "--no-run", "--threads", "1", "--json", file("out.jsonl")};
        args.insert(args.end(), more.begin(), more.end());
        const Result r = run(args);
        EXPECT_EQ(r.status, 0) << r.err;
        const Json j = lines("out.jsonl").at(0);
        EXPECT_EQ(j["ok"], true);
        return j["estimate_ms"].get<double>();
    };
    EXPECT_GT(estimate({"--no-rewrites"}), 1.5 * estimate({}));
    for (const char* without : {"deep", "unhoisted", "chimera"})
        EXPECT_GE(estimate({"--no-rewrites", "--scheduler", "mcfuser", "--chain-ablation", without}),
                  0.97 * estimate({"--no-rewrites", "--scheduler", "mcfuser"}))
            << without;
}

TEST_F(OpCommand, ChecksLargeOperatorsBySamples) {
    const Result r = run({"gemm m=64 n=64 k=64", "--check-points", "10000", "--no-run", "--json", file("out.jsonl")});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr(" of 4096 elements"));
    const Json j = lines("out.jsonl").at(0);
    EXPECT_LT(j["checked"]["elements"], 4096);
    EXPECT_TRUE(j["measured_ms"].is_null());
}

TEST_F(OpCommand, PrintsSchedules) {
    const Result r = run({"gemm m=16 n=24 k=32", "--no-run", "--no-check", "-v"});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, AllOf(HasSubstr("not checked"), HasSubstr("# kernel 0")));
}

TEST_F(OpCommand, PrintsCandidatesAfterEachPruningRule) {
    const Result r = run({"chain m=1024 n=1024 k=512 h=512", "--no-run", "--no-check", "--pruning"});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("candidates 109051904 (26 expressions); after rule 1 12582912, 2 8388608, 3 3528"));
}

TEST_F(OpCommand, ComparesTheModelWithMeasuredCandidates) {
    const Result r = run({"chain m=64 n=64 k=32 h=32", "gemm m=16 n=16 k=16", "--no-run", "--no-check", "--chain-model",
                          "3", "--time", "0.0001", "--json", file("out.jsonl")});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("model against 3 candidates: correlation "));
    const std::vector<Json> all = lines("out.jsonl");
    const Json& m = all.at(0)["chain_model"];
    EXPECT_EQ(m["points"].size(), 3u);
    EXPECT_LE(std::abs(m["correlation"].get<double>()), 1);
    EXPECT_LE(m["rank_of_fastest"].get<int>(), 3);
    EXPECT_EQ(m["share_of_first_8"], 1);
    EXPECT_FALSE(all.at(1).contains("chain_model"));
}

TEST_F(OpCommand, SavesModels) {
    ASSERT_EQ(run({"gemm m=16 n=24 k=32", "--no-run", "--save", file("one.onnx")}).status, 0);
    EXPECT_EQ(load_model(file("one.onnx")).graph.nodes.at(0).op, "MatMul");
    ASSERT_EQ(run({"softmax m=4 n=4", "layernorm m=4 n=4", "--no-run", "--save", file("models")}).status, 0);
    EXPECT_EQ(load_model(file("models/0.onnx")).graph.nodes.at(0).op, "Softmax");
    EXPECT_EQ(load_model(file("models/1.onnx")).graph.nodes.at(0).op, "LayerNormalization");
}

TEST_F(OpCommand, ListsTheOperators) {
    const Result r = run({"--list"});
    EXPECT_EQ(r.status, 0);
    EXPECT_EQ(r.out, print_op_kinds());
}

TEST_F(OpCommand, ExitsWithStatusTwoOnAWrongCommandLine) {
    for (const auto& [arguments, word] : std::vector<std::pair<std::vector<std::string>, std::string>>{
             {{}, "--list"},
             {{"gemm m=1 n=1 k=1", "--scheduler", "magic"}, "magic not in {default,"},
             {{"gem m=1"}, "there is no operator 'gem'"},
             {{"gemm m=1 n=1 k=1 q=2"}, "its keys are m, n, k"},
             {{"gemm m=1 n=1 k=1", "--threads", "0"}, "--threads"},
             {{"gemm m=1 n=1 k=1", "--time", "1", "--iterations", "2"}, "--time"}}) {
        const Result r = run(arguments);
        EXPECT_EQ(r.status, 2) << r.err;
        EXPECT_THAT(r.err, HasSubstr(word));
        EXPECT_EQ(r.out, "");
    }
}

TEST_F(OpCommand, FailsWithStatusOne) {
    write_file(file("bad.txt"), {"softmax m=8 n=16\nsoftmax m=8\n"});
    const Result bad = run({"--batch", file("bad.txt")});
    EXPECT_EQ(bad.status, 1);
    EXPECT_THAT(bad.err, HasSubstr("bad.txt:2: operator 'softmax' needs n"));
    EXPECT_EQ(run({"--batch", file("none.txt")}).status, 1);

    // An operator that cannot be built does not prevent the next from being run.
    const Result one = run({"conv2d c=2 h=2 o=2 kh=5", "softmax m=8 n=16", "--no-run", "--json", file("out.jsonl")});
    EXPECT_EQ(one.status, 1);
    EXPECT_EQ(one.err, "error: 1 of 2 operators failed\n");
    EXPECT_THAT(one.out, HasSubstr("FAILED: the input is too small"));
    const std::vector<Json> all = lines("out.jsonl");
    EXPECT_EQ(all.at(0)["ok"], false);
    EXPECT_THAT(all.at(0)["error"].get<std::string>(), HasSubstr("too small"));
    EXPECT_TRUE(all.at(0)["construct_ms"].is_null());
    EXPECT_EQ(all.at(1)["ok"], true);
}

}  // namespace
}  // namespace tilewright
