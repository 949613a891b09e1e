// explain: text, JSON and page of models with known plans.

#include <gmock/gmock.h>

#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cost/target.h"
#include "driver/npy.h"
#include "tool/tool_runner_test.h"

namespace tilewright::tool_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

class Explain : public testing::Test {
  protected:
    void SetUp() override {
        // softmax(q k^T / sqrt(k)) v, as exporters write it.
        write("attention", {"heads=2", "m=48", "n=40", "k=16", "h=16"}, "model.onnx");
    }
    void write(const std::string& name, const std::vector<std::string>& settings, const std::string& file) {
        std::vector<std::string> arguments = {"zoo", name, "-o", file};
        for (const std::string& s : settings) {
            arguments.emplace_back("--set");
            arguments.push_back(s);
        }
        const Result r = place.run(arguments);
        ASSERT_EQ(r.status, 0) << r.err;
    }
    Json json(const std::vector<std::string>& more) {
        std::vector<std::string> arguments = {"explain", "model.onnx", "--json", "plan.json"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const Result r = place.run(arguments);
        EXPECT_EQ(r.status, 0) << r.err;
        return Json::parse(place.read("plan.json"));
    }
    Workplace place;
};

TEST_F(Explain, NamesTheMachineWhoseRatesItUses) {
    std::ofstream(place / "machine.json") << R"({"format": 1, "cpu": "Round CPU", "cpu_id": "r", "arch": "x86_64",
 "features": ["avx2"], "isa": "avx2", "vector_bits": 256, "vector_registers": 16, "cores": 1, "threads": 1,
 "ghz": {"value": 2, "spread": 0, "samples": 1}, "memory_latency_ns": {"value": 90, "spread": 0, "samples": 1},
 "memory_gbps_1": {"value": 20, "spread": 0, "samples": 1}, "memory_gbps_all": {"value": 20, "spread": 0, "samples": 1},
 "copy_gbps_1": {"value": 20, "spread": 0, "samples": 1}, "copy_gbps_all": {"value": 20, "spread": 0, "samples": 1},
 "fma_gflops_1": {"value": 50, "spread": 0, "samples": 1}, "fma_gflops_all": {"value": 50, "spread": 0, "samples": 1},
 "dispatch_us": {"value": 1, "spread": 0, "samples": 1},
 "caches": [{"level": 1, "bytes": 32768, "measured_bytes": 0, "line_bytes": 64, "shared_by": 1,
   "load_gbps": {"value": 100, "spread": 0, "samples": 1}, "latency_ns": {"value": 2, "spread": 0, "samples": 1}}],
 "calibrated": true})";
    const Result other = place.run({"explain", "model.onnx", "--target-file", "machine.json"});
    ASSERT_EQ(other.status, 0) << other.err;
    EXPECT_THAT(other.out, HasSubstr("limits and estimates use measured rates of Round CPU"));
    EXPECT_EQ(json({"--target-file", "machine.json"})["machine"], "Round CPU");
    EXPECT_EQ(json({})["machine"], host_target().cpu);
}

TEST_F(Explain, ListsTheKernelsOfAGreedyPlan) {
    const Json j = json({});
    EXPECT_EQ(j["blp_status"], "none");
    EXPECT_TRUE(j["blp_gap"].is_null()) << "nothing was solved";
    EXPECT_TRUE(j["emitted_gap"].is_null());
    EXPECT_TRUE(j["measured_share"].is_null());
    EXPECT_EQ(j["execution_states"], 0);
    EXPECT_GT(j["compile_ms"], 0);
    EXPECT_EQ(j["plan_ms"], j["greedy_ms"]);
    EXPECT_LT(j["plan_ms"], j["operators_ms"]) << "fusing operators saves nothing";
    // Every primitive is in a kernel that lists it, and vice versa.
    const Json &kernels = j["kernels"], &primitives = j["primitives"];
    ASSERT_GT(kernels.size(), 0u);
    for (size_t k = 0; k < kernels.size(); ++k) {
        EXPECT_GT(kernels[k]["estimate_us"], 0);
        EXPECT_GT(kernels[k]["limit_us"], 0);
        EXPECT_FALSE(kernels[k]["operators"].empty()) << kernels[k];
        for (const size_t p : kernels[k]["primitives"]) {
            const std::vector<size_t> of = primitives[p]["kernels"];
            EXPECT_EQ(std::count(of.begin(), of.end(), k), 1);
        }
    }
    for (const Json& p : primitives) EXPECT_FALSE(p["operators"].empty()) << p;
}

/// The totals per operator add up to the kernels' times, and with their launches to the plan's time.
TEST_F(Explain, AttributesKernelTimesToOperators) {
    write("conv2d", {"in=16", "out=24", "size=10"}, "conv.onnx");
    for (const char* model : {"model.onnx", "conv.onnx"})
        for (const bool measured : {false, true}) {
            std::vector<std::string> arguments = {"explain", model, "--json", "plan.json"};
            if (measured) arguments.insert(arguments.end(), {"--time", "0.01"});
            const Result r = place.run(arguments);
            ASSERT_EQ(r.status, 0) << r.err;
            EXPECT_THAT(r.out, HasSubstr("\noperators   "));
            const Json j = Json::parse(place.read("plan.json"));
            std::map<std::string, double> expected;
            double all = 0, estimates = 0;
            for (const Json& k : j["kernels"]) {
                const double us = (k["measured_us"].is_null() ? k["estimate_us"] : k["measured_us"]).get<double>();
                double shares = 0;
                for (const auto& [type, share] : k["shares"].items()) {
                    const std::string all_operators = k["operators"].dump();
                    if (k["primitives"].empty()) {
                        EXPECT_EQ(type, "(layout conversion)");
                    } else {
                        EXPECT_THAT(all_operators, HasSubstr(type));
                    }
                    EXPECT_GE(share.get<double>(), 0);
                    shares += share.get<double>();
                    expected[type] += share.get<double>() * us;
                }
                EXPECT_NEAR(shares, 1, 1e-9);
                all += us;
                estimates += k["estimate_us"].get<double>() + j["launch_us"].get<double>();
            }
            double sum = 0, before = std::numeric_limits<double>::infinity();
            for (const Json& t : j["operator_totals"]) {
                const double us = t["us"];
                EXPECT_NEAR(us, expected.at(t["operator"]), 1e-9 * all);
                EXPECT_LE(us, before) << "longest first";
                EXPECT_GT(t["kernels"], 0);
                sum += before = us;
            }
            EXPECT_EQ(j["operator_totals"].size(), expected.size());
            EXPECT_NEAR(sum, all, 1e-9 * all);
            EXPECT_NEAR(j["plans"][0]["estimate_ms"].get<double>(), estimates * 1e-3, 1e-9 * estimates);
        }
    // Nearly all arithmetic of an attention is in its two products.
    const Json totals = json({})["operator_totals"];
    EXPECT_EQ(totals[0]["operator"], "MatMul");
}

/// A kernel's estimate depends on the given sizes.
TEST_F(Explain, EstimatesForTheGivenSizes) {
    write("mlp", {"batch=0"}, "model.onnx");
    const Json assumed = json({}), one = json({"--dim", "batch=1"}), many = json({"--dim", "batch=4096"});
    EXPECT_TRUE(assumed["sizes"].empty());
    EXPECT_EQ(one["sizes"], (Json{{"batch", 1}}));
    EXPECT_EQ(one["plan_ms"], assumed["plan_ms"]) << "what is assumed of a batch";
    EXPECT_GT(json({"--dim", "batch=128"})["plan_ms"], assumed["plan_ms"]);
    EXPECT_GT(many["plan_ms"].get<double>(), 8 * assumed["plan_ms"].get<double>());
    EXPECT_GT(many["greedy_ms"].get<double>(), 8 * assumed["greedy_ms"].get<double>());
    EXPECT_GT(many["kernels"][0]["limit_us"].get<double>(), 8 * assumed["kernels"][0]["limit_us"].get<double>());
    const auto columns = static_cast<int64_t>(784);
    save_npy(place / "x.npy", Tensor(DType::F32, {4096, columns}));
    const Result given = place.run({"explain", "model.onnx", "--input", "input=x.npy"});
    EXPECT_EQ(given.status, 0) << given.err;
    EXPECT_THAT(given.out, HasSubstr("\nfor batch = 4096\n"));
    const Result wrong = place.run({"explain", "model.onnx", "--dim", "bacth=2"});
    EXPECT_TRUE(refused(wrong));
    EXPECT_THAT(wrong.err, HasSubstr("did you mean 'batch'?"));
}

/// Which way each region takes depends on the sizes, and the kernels are those of the ways that are taken.
TEST_F(Explain, SaysWhichWayEachRegionTakes) {
    write("gpt2_tiny", {}, "model.onnx");
    const std::vector<std::string> ranges{"--dim", "seq=1..128", "--dim", "batch=1..2"};
    const auto at = [&](const std::string& seq) {
        std::vector<std::string> options = ranges;
        for (const char* text : {"--dim", "batch=1", "--dim"}) options.emplace_back(text);
        options.push_back("seq=" + seq);
        return json(options);
    };
    const Json one = at("1"), many = at("128");
    ASSERT_EQ(one["regions"].size(), many["regions"].size());
    for (const Json& r : one["regions"]) {
        EXPECT_LT(r["taken"], r["ways"].size());
        EXPECT_FALSE(r["dispatch"].get<std::string>().empty());
        for (const Json& way : r["ways"]) {
            EXPECT_GE(way["kernels"], 1);
            EXPECT_GT(way["estimate_us"], 0);
        }
    }
    std::vector<std::string> outside = ranges;
    outside.insert(outside.begin(), {"run", "model.onnx", "--dim", "batch=1", "--dim", "seq=129"});
    const Result refusal = place.run(outside);
    EXPECT_TRUE(refused(refusal));
    EXPECT_THAT(refusal.err, HasSubstr("dimension seq = 129, and the model is compiled for 1 to 128"));
    const Result malformed = place.run({"run", "model.onnx", "--dim", "seq=4..1"});
    EXPECT_TRUE(refused(malformed));
    EXPECT_THAT(malformed.err, HasSubstr("'4..1' is no range of sizes: 1 is less than 4"));
}

TEST_F(Explain, PrintsTheCandidatesOfTheBinaryProgram) {
    const Json j = json({"--orchestrate", "optimal"});
    EXPECT_EQ(j["blp_status"], "optimal");
    EXPECT_GT(j["execution_states"], 0);
    // By estimates the emitted plan is the chosen plan; its gap is that of its costs over the bound of all pieces.
    double plan = 0, bound = 0, emitted = 0;
    size_t conversions = 0;
    for (const Json& piece : j["pieces"]) {
        conversions += piece["conversions"].get<size_t>();
        plan += piece["ms"].get<double>();
        bound += piece["bound_ms"].get<double>();
        emitted += piece["emitted_ms"].get<double>();
    }
    ASSERT_GT(bound, 0);
    EXPECT_NEAR(emitted, plan, 1e-9 * plan);
    EXPECT_NEAR(j["choice"]["emitted_ms"], emitted, 1e-9 * plan);
    EXPECT_NEAR(j["blp_gap"], (plan - bound) / bound, 1e-9);
    EXPECT_NEAR(j["emitted_gap"], (emitted - bound) / bound, 1e-9);
    EXPECT_EQ(j["greedy_pieces"], 0);
    EXPECT_LE(j["distinct_candidates"], j["candidates"].get<size_t>() + conversions);
    EXPECT_GT(j["distinct_candidates"], 0);
    EXPECT_GT(j["candidates"], j["kernels"].size());
    EXPECT_GT(j["blp_columns"], 0);
    EXPECT_GT(j["blp_rows"], 0);
    EXPECT_EQ(j["measured"], 0);
    EXPECT_FALSE(j["refused"].empty());
    size_t states = 0;
    for (const Json& piece : j["pieces"]) states += piece["execution_states"].get<size_t>();
    EXPECT_EQ(j["execution_states"], states);
}

TEST_F(Explain, WithoutTimeIsNoWorseThanTheInitialPlan) {
    const Json j = json({"--orchestrate", "optimal", "--blp-seconds", "0"}), whole = json({"--orchestrate", "optimal"});
    EXPECT_EQ(j["candidates"], whole["candidates"]);
    EXPECT_GE(j["choice"]["plan_ms"], whole["choice"]["plan_ms"]);
    EXPECT_LE(j["choice"]["plan_ms"], j["choice"]["greedy_ms"]);
    EXPECT_LE(j["choice"]["bound_ms"], whole["choice"]["plan_ms"]);
    EXPECT_EQ(place.run({"explain", "model.onnx", "--blp-seconds", "-1"}).status, 2);
}

/// The interface for scripts: every figure of orchestration has its name at the top level.
TEST_F(Explain, HasItsFiguresAtTheTopLevel) {
    for (const std::vector<std::string>& how : {std::vector<std::string>{},
                                                {"--orchestrate", "optimal"},
                                                {"--orchestrate", "optimal", "--profile", "lazy"}}) {
        std::vector<std::string> more = how;
        more.insert(more.end(), {"--database", "own.db"});
        const Json j = json(more);
        for (const char* number : {"execution_states", "candidates", "distinct_candidates", "measured", "blp_columns",
                                   "blp_rows", "greedy_pieces", "capped_pieces", "compile_ms", "greedy_ms", "plan_ms"})
            EXPECT_TRUE(j.contains(number) && j[number].is_number()) << number;
        for (const char* share : {"blp_gap", "emitted_gap", "measured_share"})
            EXPECT_TRUE(j.contains(share) && (how.empty() ? j[share].is_null() : j[share].is_number())) << share;
        EXPECT_TRUE(j["blp_status"].is_string());
        for (const char* list : {"kernels", "primitives", "pieces", "plans"})
            EXPECT_TRUE(j.contains(list) && j[list].is_array()) << list;
        EXPECT_TRUE(j["refused"].is_object());
    }
}

/// Both binary programs: the relaxation of the published one is no tighter than that of the strong one.
TEST_F(Explain, PrintsTheRootsOfBothPrograms) {
    const Json j = json({"--orchestrate", "optimal", "--blp", "both"});
    const double strong = j["blp_roots"]["strong"]["root_ms"], published = j["blp_roots"]["published"]["root_ms"];
    EXPECT_GT(published, 0);
    EXPECT_LE(published, strong * (1 + 1e-6));
    EXPECT_LE(strong, j["choice"]["plan_ms"].get<double>() * (1 + 1e-6));
    EXPECT_GE(j["blp_roots"]["strong"]["solve_ms"], 0);
    const Result r = place.run({"explain", "model.onnx", "--orchestrate", "optimal", "--blp", "both"});
    EXPECT_THAT(r.out, AllOf(HasSubstr("roots"), HasSubstr("strong "), HasSubstr("published ")));
    EXPECT_TRUE(json({"--orchestrate", "optimal"})["blp_roots"]["published"].is_null());
    EXPECT_EQ(json({"--orchestrate", "optimal", "--blp", "published"})["blp_status"], "optimal");
}

/// A smaller limit of pieces: more cuts, more values across them, a plan that costs at least as much.
TEST_F(Explain, PrintsTheCostOfTheLimitOfPieces) {
    double before = 0, bytes = 0;
    size_t pieces = 0;
    for (const char* nodes : {"100", "6", "2", "1"}) {
        const Json j = json({"--orchestrate", "optimal", "--piece-nodes", nodes});
        EXPECT_GE(j["pieces"].size(), pieces) << nodes;
        EXPECT_GE(j["cuts"]["bytes"], bytes) << nodes;
        EXPECT_GE(j["choice"]["plan_ms"], before * (1 - 1e-6)) << nodes;
        for (const Json& piece : j["pieces"]) EXPECT_LE(piece["primitives"], std::stoi(nodes));
        pieces = j["pieces"].size();
        bytes = j["cuts"]["bytes"];
        before = j["choice"]["plan_ms"];
    }
    EXPECT_GT(pieces, 4u);
}

/// Limits of candidates are flags; if they excluded candidates, the gap is printed with a remark.
TEST_F(Explain, PrintsExcludedCandidatesWithTheGap) {
    const std::vector<std::string> all = {"--orchestrate", "optimal"};
    const auto with = [&](const std::string& flag, const std::string& value) {
        return json({"--orchestrate", "optimal", flag, value});
    };
    const Json whole = json(all), capped = with("--most-sets", "1"), single = with("--kernel-nodes", "1"),
               outputs = with("--most-outputs", "1");
    EXPECT_EQ(whole["capped_pieces"], 0);
    EXPECT_GT(capped["capped_pieces"], 0);
    EXPECT_LT(capped["candidates"], whole["candidates"]);
    EXPECT_LT(single["candidates"], whole["candidates"]);
    EXPECT_LE(outputs["candidates"], whole["candidates"]);
    EXPECT_GE(capped["choice"]["plan_ms"].get<double>(), whole["choice"]["plan_ms"].get<double>() * (1 - 1e-9));
    const Result r = place.run({"explain", "model.onnx", "--orchestrate", "optimal", "--most-sets", "1"});
    EXPECT_THAT(r.out, HasSubstr("of the sets listed (capped in "));
    EXPECT_EQ(place.run({"explain", "model.onnx", "--most-sets", "0"}).status, 2);
}

TEST_F(Explain, SaysWhyKernelsAreNotFused) {
    write("mlp", {}, "model.onnx");
    const Json j = json({});
    const Json& kernels = j["kernels"];
    ASSERT_GT(kernels.size(), 1u);
    size_t boundaries = 0;
    for (size_t k = 0; k < kernels.size(); ++k)
        for (const Json& n : kernels[k]["not_fused"]) {
            EXPECT_NE(n["reason"], "");
            for (const size_t other : n["kernels"]) EXPECT_LT(other, k) << "it computes what is read";
            boundaries += n["kernels"].size();
        }
    EXPECT_GE(boundaries, kernels.size() - 1) << j["kernels"];
    const Result r = place.run({"explain", "model.onnx"});
    EXPECT_THAT(r.out, HasSubstr("not fused with kernel 1: "));
}

/// Under optimal orchestration the reason is a refusal or the costs of the two kernels.
TEST_F(Explain, SaysWhyKernelsWereNotSelectedAsOne) {
    write("mlp", {}, "model.onnx");
    const Json j = json({"--orchestrate", "optimal"});
    size_t boundaries = 0;
    for (const Json& k : j["kernels"])
        for (const Json& n : k["not_fused"]) {
            ++boundaries;
            EXPECT_THAT(
                n["reason"].get<std::string>(),
                testing::AnyOf(testing::ContainsRegex("estimated [0-9.]+ us together, [0-9.]+ us apart"),
                               "several products, but the scheduler does not support chains", "no schedule as a chain",
                               "its stages share no rows", "one of them converts a layout"));
        }
    EXPECT_GT(boundaries, 0u) << j["kernels"];
}

TEST_F(Explain, FitsATerminal) {
    const Result r = place.run({"explain", "model.onnx", "--orchestrate", "optimal", "--kernels", "1"});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, AllOf(HasSubstr("execution states in "), HasSubstr("convex sets"), HasSubstr("gap 0.00 %"),
                             HasSubstr("above the bound"), HasSubstr("greedy kernels kept in 0 of "),
                             Not(HasSubstr("capped")), HasSubstr("this plan"), HasSubstr("one kernel per operator")));
    size_t from = 0;
    for (size_t end = 0; (end = r.out.find('\n', from)) != std::string::npos; from = end + 1)
        EXPECT_LE(end - from, 120u) << r.out.substr(from, end - from);
}

/// What cuBLASLt and cuDNN are offered of each kernel, and why not more.
TEST_F(Explain, SaysWhatLibrariesAreOfferedOfKernelsForAGpu) {
    const auto offers = [&](const std::vector<std::string>& more) {
        std::vector<std::string> arguments = {"--target", "cuda:sm_90a", "--no-rewrites"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        std::vector<std::string> out;
        const Json plan = json(arguments);
        for (const Json& k : plan["kernels"]) out.push_back(k["offered_to_libraries"]);
        return out;
    };
    const std::string products = "2 of its sums (several stages)";
    EXPECT_THAT(offers({"--precision", "tf32"}), testing::ElementsAre(products));
    EXPECT_THAT(offers({"--precision", "tf32", "--gpu-libraries"}), testing::ElementsAre(products));
    // Three layers: weights are rounded, and the last layer's are too few for that.
    write("mlp", {}, "model.onnx");
    const std::string sum = "its sum (operands of different types)", whole = "the kernel";
    EXPECT_THAT(offers({"--precision", "f16"}), testing::ElementsAre(sum, sum, whole));
    EXPECT_THAT(offers({"--precision", "tf32"}), testing::ElementsAre(whole, whole, whole));
    // With a batch of any size inputs are rounded first, and cuDNN may have the products with their bias and relu.
    write("mlp", {"batch=0"}, "model.onnx");
    const std::string graph =
        "its sum, the kernel as cuDNN's graph (an epilogue operand of another type than the result)";
    EXPECT_THAT(offers({"--precision", "f16"}), testing::ElementsAre("", graph, graph, whole));
    EXPECT_THAT(offers({"--precision", "tf32"}), testing::ElementsAre(whole, whole, whole));
    write("mlp", {}, "model.onnx");
    const Result text =
        place.run({"explain", "model.onnx", "--target", "cuda:sm_90a", "--no-rewrites", "--precision", "f16"});
    EXPECT_THAT(text.out, AllOf(HasSubstr("\n      libraries   " + sum + "\n"),
                                HasSubstr("\n      libraries   " + whole + "\n")));
    // On a CPU there is nothing to say.
    const Json of_cpu = json({});
    for (const Json& k : of_cpu["kernels"]) EXPECT_EQ(k["offered_to_libraries"], "");
}

TEST_F(Explain, MeasuresComparedPlansOnRequest) {
    const Json j = json({"--time", "0.01"});
    for (const Json& plan : j["plans"]) EXPECT_GT(plan["measured_ms"], 0) << plan;
    for (const Json& k : j["kernels"]) EXPECT_GT(k["measured_us"], 0) << k;
}

TEST_F(Explain, ChecksItsOutputFileBeforeCompiling) {
    for (const char* option : {"--json", "--html"}) {
        const Result r = place.run({"explain", "model.onnx", option, "no/such/folder/plan"});
        EXPECT_EQ(r.status, 1);
        EXPECT_THAT(r.err, HasSubstr("cannot write 'no/such/folder/plan': No such file or directory"));
        EXPECT_EQ(r.out, "");
    }
}

TEST_F(Explain, WritesASelfContainedPage) {
    const Result r = place.run({"explain", "model.onnx", "--orchestrate", "optimal", "--html", "plan.html"});
    ASSERT_EQ(r.status, 0) << r.err;
    const std::string page = place.read("plan.html");
    EXPECT_THAT(page, AllOf(HasSubstr("<!doctype html>"), Not(HasSubstr("http://www.w3.org/1999")),
                            Not(HasSubstr("src=")), Not(HasSubstr("https://")), Not(HasSubstr("/*REPORT*/"))));
    const size_t begin = page.find("id=\"data\">") + 10, end = page.find("</script>", begin);
    const Json data = Json::parse(page.substr(begin, end - begin));
    for (const char* part : {"id=\"graph\"", "id=\"timeline\"", "id=\"roofline\"", "id=\"operators\"", "id=\"colours\"",
                             "id=\"signs\"", "prefers-color-scheme: dark", "max-width: 820px", "name=\"viewport\""})
        EXPECT_THAT(page, HasSubstr(part));
    // The elements that the script looks up exist.
    const std::string script = page.substr(end);
    for (size_t at = 0; (at = script.find("$(\"", at)) != std::string::npos; ++at) {
        const std::string id = script.substr(at + 3, script.find('"', at + 3) - at - 3);
        EXPECT_THAT(page.substr(0, begin), HasSubstr("id=\"" + id + "\""));
    }
    EXPECT_FALSE(data["operator_totals"].empty());
    // A kernel's limit is on the roofline: its bytes at the bandwidth of one level, or its multiply-adds at the peak.
    EXPECT_GT(data["roofline"]["gflops"], 0);
    EXPECT_EQ(data["roofline"]["levels"].back()["level"], "memory");
    std::map<std::string, double> gbps;
    for (const Json& l : data["roofline"]["levels"]) gbps[l["level"]] = l["gbps"];
    for (const Json& k : data["kernels"]) {
        EXPECT_GT(k["bytes"], 0);
        const double limit = k["limit_us"];
        const double least = k["limit"] == "multiply-adds"
                                 ? k["operations"].get<double>() / data["roofline"]["gflops"].get<double>() * 1e-3
                                 : k["bytes"].get<double>() / gbps.at(k["limit"]) * 1e-3;
        EXPECT_GT(limit, 0.5 * least) << "other operations than multiply-adds are not in the limit";
        EXPECT_LE(limit, least * (1 + 1e-9));
    }
    EXPECT_EQ(data["drawing"]["boxes"].size(), data["kernels"].size() + data["steps"].get<size_t>());
    // Every primitive of a kernel is drawn inside its box.
    for (size_t k = 0; k < data["kernels"].size(); ++k) {
        const Json& box = data["drawing"]["boxes"][k];
        std::set<size_t> drawn;
        for (const Json& p : box["inside"]) {
            drawn.insert(p["primitive"].get<size_t>());
            EXPECT_LE(p["x"].get<double>() + p["width"].get<double>(), box["width"].get<double>());
            EXPECT_LE(p["y"].get<double>() + p["height"].get<double>(), box["height"].get<double>());
        }
        const std::vector<size_t> primitives = data["kernels"][k]["primitives"];
        EXPECT_EQ(drawn, std::set<size_t>(primitives.begin(), primitives.end()));
        const Json& code = data["codes"][data["kernels"][k]["code"].get<size_t>()];
        EXPECT_THAT(code["tiles"].get<std::string>(), HasSubstr("compute"));
        EXPECT_FALSE(code["assembly"].get<std::string>().empty());
    }
}

/// Library kernels are candidates if kernels are measured: those of oneDNN if it is installed. A library that is
/// requested by name and missing is an error; a default library that is missing is not.
TEST_F(Explain, MeasuresLibrariesBesideGeneratedKernels) {
    write("mlp", {"in=256", "hidden=128", "layers=2", "out=64", "batch=64"}, "model.onnx");
    const std::vector<std::string> measured = {"--orchestrate", "optimal", "--profile", "full", "--threads", "1"};
    const auto with = [&](const std::string& libraries, const std::string& database) {
        std::vector<std::string> more = measured;
        more.insert(more.end(), {"--database", database});
        if (!libraries.empty()) more.insert(more.end(), {"--libraries", libraries});
        return more;
    };
    const Json none = json(with("none", "none.db"));
    EXPECT_FALSE(none.contains("library"));
    for (const Json& k : none["kernels"]) EXPECT_EQ(k["provider"], "generated");
    // A missing library.
    std::vector<std::string> absent = with("onednn=/nowhere/libdnnl.so.2", "absent.db");
    absent.insert(absent.begin(), {"explain", "model.onnx"});
    const Result missing = place.run(absent);
    EXPECT_TRUE(refused(missing)) << missing.err;
    EXPECT_THAT(missing.err, AllOf(HasSubstr("oneDNN"), HasSubstr("/nowhere/libdnnl.so.2")));
    // A shared library of another kind.
    absent.back() = "onednn=libc.so.6";
    EXPECT_TRUE(refused(place.run(absent)));
    // Invalid values of --libraries, or a command that does not measure.
    for (const std::vector<std::string>& wrong :
         {std::vector<std::string>{"--orchestrate", "optimal", "--profile", "lazy", "--libraries", "mkl"},
          {"--orchestrate", "optimal", "--libraries", "onednn"},
          {"--libraries", "onednn"}}) {
        std::vector<std::string> arguments = {"explain", "model.onnx"};
        arguments.insert(arguments.end(), wrong.begin(), wrong.end());
        const Result r = place.run(arguments);
        EXPECT_EQ(r.status, 2) << r.err;
        EXPECT_THAT(r.err, HasSubstr("--libraries"));
    }
    // By default the installed libraries, here oneDNN or none; by name only if it is installed.
    const Json some = json(with("", "some.db"));
    std::vector<std::string> named = with("onednn", "some.db");
    named.insert(named.begin(), {"explain", "model.onnx"});
    const Result named_run = place.run(named);
    if (!some.contains("library")) {
        EXPECT_TRUE(refused(named_run)) << named_run.err;
        GTEST_SKIP() << "oneDNN is not installed";
    }
    EXPECT_EQ(named_run.status, 0) << named_run.err;
    const Json& library = some["library"];
    EXPECT_THAT(library["name"].get<std::string>(), testing::StartsWith("oneDNN "));
    EXPECT_GT(library["measured"], 0) << "the library supports products";
    EXPECT_LE(library["faster"], library["measured"]);
    size_t kept = 0;
    const std::string of_library = library["name"].get<std::string>() + ", ";  // and the kernel's name
    for (const Json& k : some["kernels"]) kept += k["provider"].get<std::string>().starts_with(of_library) ? 1 : 0;
    EXPECT_EQ(library["kept"], kept);
    const Result right = place.run([&] {
        std::vector<std::string> v = with("onednn", "some.db");
        v.insert(v.begin(), {"verify", "model.onnx"});
        return v;
    }());
    EXPECT_EQ(right.status, 0) << right.out << right.err;
}

/// Every command that compiles has the ablations of orchestration as an option.
TEST_F(Explain, AblationsGiveTheSameOutputs) {
    write("mlp", {"in=40", "hidden=24", "layers=3", "out=5", "batch=3"}, "mlp.onnx");
    write("conv2d", {"in=16", "out=24", "size=10"}, "conv.onnx");
    for (const char* model : {"model.onnx", "mlp.onnx", "conv.onnx"})
        for (const char* flag : {"--no-fission", "--no-operator-fusion", "--no-redundancy", "--single-output",
                                 "--layouts-first", "--no-rewrites"})
            for (const char* orchestrator : {"greedy", "optimal"}) {
                const Result r = place.run({"verify", model, flag, "--orchestrate", orchestrator});
                EXPECT_EQ(r.status, 0) << model << " " << flag << " " << orchestrator << ": " << r.out << r.err;
            }
}

}  // namespace
}  // namespace tilewright::tool_test
