// tune, and what other commands use of it with --tuned.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "onnx/onnx_pb.h"
#include "tool/tool_runner_test.h"
#include "tune/database.h"

namespace tilewright::tool_test {
namespace {

using namespace import_test;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

constexpr const char* kDatabase = "tuning.db";

void add_weights(onnx::GraphProto& g, const std::string& name, int64_t rows, int64_t columns) {
    onnx::TensorProto& w = *g.add_initializer();
    w.set_name(name);
    w.set_data_type(onnx::TensorProto::FLOAT);
    w.add_dims(rows);
    w.add_dims(columns);
    for (int64_t i = 0; i < rows * columns; ++i) w.add_float_data(static_cast<float>(i % 17 - 8) / 64);
}

/// y = Softmax(Relu(x a) b), x of shape [rows, 128]; rows < 0: dynamic.
onnx::ModelProto two_products(int64_t rows) {
    onnx::ModelProto m = new_model();
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {rows < 0 ? 1 : rows, 128});
    if (rows < 0)
        g.mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_param(
            "rows");
    add_weights(g, "a", 128, 192);
    add_weights(g, "b", 192, 64);
    add_node(g, "MatMul", {"x", "a"}, {"p"});
    add_node(g, "Relu", {"p"}, {"r"});
    add_node(g, "MatMul", {"r", "b"}, {"q"});
    add_node(g, "Softmax", {"q"}, {"y"});
    add_output(g, "y");
    g.mutable_output(0)->mutable_type()->mutable_tensor_type()->clear_shape();
    return m;
}

using Records = std::map<std::string, Measurement>;

Records records(const std::string& path) {
    Records out;
    for (Measurement& m : TuningDatabase(path).measurements()) {
        const std::string key = m.key.stages + m.key.schedule + m.key.settings;
        EXPECT_TRUE(out.emplace(key, std::move(m)).second) << "two records of one key";
    }
    return out;
}

class TuneTool : public testing::Test {
  protected:
    TuneTool() { place.write("model.onnx", two_products(32)); }

    Result tool(std::vector<std::string> arguments, const Limits& limits = {.seconds = 300}) const {
        arguments.insert(arguments.end(), {"--threads", "1", "--database", kDatabase});
        return place.run(arguments, limits);
    }
    Json json(const std::string& name) const { return Json::parse(place.read(name)); }

    Workplace place;
};

TEST_F(TuneTool, PrintsWhatWasGainedWhere) {
    const Result r = tool({"tune", "model.onnx", "--budget", "24", "--json", "tuned.json"});
    ASSERT_EQ(r.status, 0) << r.err;
    // On a busy machine, times may leave no kernel with an expected gain before all candidates were tried.
    EXPECT_THAT(r.out, AllOf(HasSubstr(" candidates of "), HasSubstr("calls"), HasSubstr("default us"),
                             AnyOf(HasSubstr("all candidates of the budget were tried"),
                                   HasSubstr("no kernel is expected to gain"))));
    EXPECT_THAT(r.err, Not(HasSubstr("tuning model.onnx"))) << "no progress without a terminal";
    const Json j = json("tuned.json");
    EXPECT_GT(j.at("candidates"), 0);
    EXPECT_LE(j.at("candidates"), 24);
    EXPECT_EQ(j.at("recalled"), 0);
    EXPECT_EQ(j.at("wrong"), 0);
    double share = 0;
    size_t candidates = 0;
    for (const Json& k : j.at("kernels")) {
        share += k.at("share").get<double>();
        candidates += k.at("candidates").get<size_t>();
        if (!k.at("tuned_us").is_null()) {
            EXPECT_LE(k.at("tuned_us"), k.at("default_us"));
        }
    }
    EXPECT_NEAR(share, 1, 1e-6);
    EXPECT_LE(candidates, 24u);
    // Kept or not, the text says which, and why.
    if (j.at("kept").get<bool>()) {
        EXPECT_LT(j.at("tuned_ms"), j.at("default_ms"));
        EXPECT_THAT(r.out, HasSubstr("the tuned plan is kept"));
    } else {
        EXPECT_THAT(r.out,
                    HasSubstr("nothing is gained, the default plan stays: " + j.at("reason").get<std::string>()));
    }
}

TEST_F(TuneTool, TheTunedPlanIsUsedByOtherCommandsWithoutMeasurements) {
    ASSERT_EQ(tool({"tune", "model.onnx", "--budget", "24", "--json", "tuned.json"}).status, 0);
    const bool kept = json("tuned.json").at("kept").get<bool>();
    const Records before = records(place / kDatabase);
    const auto plan = [&](const std::vector<std::string>& more) {
        std::vector<std::string> arguments = {"dump", "model.onnx", "--stage", "tiles"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const Result r = tool(arguments);
        EXPECT_EQ(r.status, 0) << r.err;
        return r.out;
    };
    EXPECT_EQ(plan({"--tuned"}) != plan({}), kept);
    const Result run = tool({"run", "model.onnx", "--tuned"});
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(tool({"verify", "model.onnx", "--tuned"}).status, 0);
    EXPECT_EQ(tool({"compile", "model.onnx", "-o", "model.so", "--tuned"}).status, 0);
    EXPECT_EQ(records(place / kDatabase), before) << "nothing was measured";
}

/// A model that was kept before it was tuned is another one with --tuned.
TEST_F(TuneTool, AKeptModelIsNotUsedInPlaceOfATunedOne) {
    const Limits cached = {.seconds = 300, .environment = {{"XDG_CACHE_HOME", place / "cache"}}};
    const auto from_cache = [&] {
        const Result r = place.run({"bench", "model.onnx", "--tuned", "--iterations", "1", "--threads", "1",
                                    "--database", kDatabase, "--json", "b.json"},
                                   cached);
        EXPECT_EQ(r.status, 0) << r.err;
        return json("b.json").at("from_cache").get<bool>();
    };
    EXPECT_FALSE(from_cache());
    EXPECT_TRUE(from_cache());
    ASSERT_EQ(
        place.run({"tune", "model.onnx", "--budget", "16", "--threads", "1", "--database", kDatabase}, cached).status,
        0);
    EXPECT_FALSE(from_cache());
    EXPECT_TRUE(from_cache());
}

TEST_F(TuneTool, AfterKillsAtRandomPointsNothingIsMeasuredAgain) {
    std::mt19937 rng(20261128);
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(place.run({"tune", "model.onnx", "--budget", "80", "--threads", "1", "--database", "other.db"}).status,
              0);
    const double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    Records before;
    int killed = 0;
    for (int k = 0; k < 6; ++k) {
        const Result r = tool({"tune", "model.onnx", "--budget", "80"},
                              {.seconds = whole * (0.2 + 0.0005 * static_cast<double>(rng() % 1000))});
        killed += r.timed_out ? 1 : 0;
        if (!place.exists(kDatabase)) continue;
        const Records now = records(place / kDatabase);
        for (const auto& [key, record] : before) EXPECT_EQ(now.at(key), record) << "it was measured again";
        before = now;
    }
    EXPECT_GT(killed, 0);
    const Result r = tool({"tune", "model.onnx", "--budget", "80", "--json", "tuned.json"});
    ASSERT_EQ(r.status, 0) << r.err;
    const Records now = records(place / kDatabase);
    for (const auto& [key, record] : before) EXPECT_EQ(now.at(key), record) << "it was measured again";
    const Json j = json("tuned.json");
    EXPECT_LE(j.at("candidates"), 80) << "the budget counts what was measured before";
    EXPECT_EQ(j.at("recalled"), before.size());
    ASSERT_EQ(tool({"tune", "model.onnx", "--budget", "80", "--json", "again.json"}).status, 0);
    EXPECT_EQ(records(place / kDatabase), now);
    EXPECT_EQ(json("again.json").at("kept"), j.at("kept"));
    EXPECT_EQ(json("again.json").at("tuned_ms"), j.at("tuned_ms")) << "whole runs are recalled, too";
}

TEST_F(TuneTool, AnInterruptEndsWithTheTable) {
    // A model whose candidates take ten seconds: others end before the first line of progress.
    ASSERT_EQ(tool({"op", "depthwise c=512 h=56 kh=5 pad=2 stride=2", "--save", "large.onnx", "--save-only"}).status,
              0);
    const Result r = tool({"tune", "large.onnx", "--budget", "1h", "--progress", "--json", "tuned.json"},
                          {.seconds = 300, .signal_at = " candidates", .signal = SIGINT});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.err, HasSubstr(" s left"));
    EXPECT_EQ(json("tuned.json").at("ended"), "interrupted");
    EXPECT_THAT(r.out, HasSubstr("; interrupted\n"));
    EXPECT_THAT(r.out, HasSubstr("calls"));
    EXPECT_FALSE(json("tuned.json").at("kernels").empty());
}

void write_text(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

/// Records of a database that is filled by jobs, `most` of them at a time, by estimates in place of times.
Records by_jobs(const Workplace& place, const std::string& budget, const std::string& most, const std::string& database,
                const std::vector<std::string>& how = {"--estimates"}) {
    for (int k = 0; k < 100; ++k) {
        const Result jobs = place.run(
            {"tune", "model.onnx", "--budget", budget, "--jobs", most, "--threads", "1", "--database", database});
        EXPECT_EQ(jobs.status, 0) << jobs.err;
        if (jobs.out.empty()) break;
        EXPECT_LE(std::count(jobs.out.begin(), jobs.out.end(), '\n'), std::stoi(most));
        write_text(place / "jobs", jobs.out);
        std::vector<std::string> measure = {"measure", "jobs"};
        measure.insert(measure.end(), how.begin(), how.end());
        const Result measured = place.run(measure);
        EXPECT_EQ(measured.status, 0) << measured.err;
        write_text(place / "records", measured.out);
        EXPECT_EQ(place.run({"db", "merge", "records", "--db", database}).status, 0);
    }
    return records((place / database));
}

TEST_F(TuneTool, JobsMeasuredElsewhereGiveThePlanOfOneMachine) {
    const Records one = by_jobs(place, "60", "1", "one.db"), many = by_jobs(place, "60", "5", "many.db");
    EXPECT_GE(one.size(), 15u);
    EXPECT_GE(many.size(), one.size()) << "rounds that one machine does not come to";
    for (const auto& [key, m] : one) EXPECT_EQ(many.count(key), 1u);
    std::vector<Json> kernels;
    for (const std::string database : {"one.db", "many.db"}) {
        const Result r = place.run(
            {"tune", "model.onnx", "--budget", "60", "--json", "t.json", "--threads", "1", "--database", database});
        ASSERT_EQ(r.status, 0) << r.err;
        const Json t = json("t.json");
        EXPECT_EQ(t["recalled"], t["candidates"]) << "nothing is measured again";
        for (Json& k : kernels.emplace_back(t["kernels"])) {  // by estimates, whatever whole runs say
            k.erase("schedule");
            k.erase("tuned_us");
            k.erase("dropped");
        }
    }
    EXPECT_EQ(kernels[0], kernels[1]);
}

TEST_F(TuneTool, JobsAreCheckedAndMeasured) {
    const Records found = by_jobs(place, "10", "1", kDatabase, {});
    EXPECT_EQ(found.size(), 10u);
    for (const auto& [key, m] : found) {
        EXPECT_EQ(m.verdict, Verdict::measured) << m.reason;
        EXPECT_GT(m.seconds.samples, 1);
    }
}

TEST_F(TuneTool, JobsOfOtherMachinesAndDamagedOnesAreRefused) {
    const Result jobs = tool({"tune", "model.onnx", "--budget", "8", "--jobs", "1"});
    const auto refusal = [&](const std::string& text) {
        write_text(place / "jobs", text);
        const Result r = place.run({"measure", "jobs"});
        EXPECT_EQ(r.status, 1);
        EXPECT_EQ(r.out, "");
        return r.err;
    };
    Json job = Json::parse(jobs.out);
    Json other = job;
    other["target"]["cpu_id"] = "Other 1/2/3";
    EXPECT_THAT(refusal(other.dump()), HasSubstr("and this machine is"));
    EXPECT_THAT(refusal(jobs.out.substr(0, 100)), HasSubstr("'jobs', line 1: "));
    other = job;
    other["candidates"][0] = "tile {";
    EXPECT_THAT(refusal("\n" + other.dump()), HasSubstr("'jobs', line 2: "));
    other = job;
    other["format"] = 7;
    EXPECT_THAT(refusal(other.dump()), HasSubstr("format 7"));
    other = job;
    other["candidates"] = Json::array();
    EXPECT_THAT(refusal(other.dump()), HasSubstr("no candidates"));
    other = job;
    other["weights"] = Json::array();
    EXPECT_THAT(refusal(other.dump()), HasSubstr("it has 0 weights"));
    other = job;
    other["threads"] = 0;
    EXPECT_THAT(refusal(other.dump()), HasSubstr("it has 0 threads"));
    const Result timed = tool({"tune", "model.onnx", "--budget", "10s", "--jobs", "1"});
    EXPECT_EQ(timed.status, 2);
    EXPECT_THAT(timed.err, HasSubstr("a number of candidates"));
}

TEST_F(TuneTool, DynamicModelsAreTuned) {
    place.write("dynamic.onnx", two_products(-1));
    const Result r = tool({"tune", "dynamic.onnx", "--budget", "16", "--dim", "rows=40", "--json", "tuned.json"});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_TRUE(json("tuned.json").at("assumed_dims").empty());
    EXPECT_GT(json("tuned.json").at("candidates"), 0);
    EXPECT_LE(json("tuned.json").at("candidates"), 16);
    EXPECT_EQ(tool({"verify", "dynamic.onnx", "--tuned", "--dim", "rows=3"}).status, 0);
    const Result ranged =
        tool({"tune", "dynamic.onnx", "--budget", "16", "--dim", "rows=1..64:1,32", "--dim", "rows=32"});
    ASSERT_EQ(ranged.status, 0) << ranged.err;
    EXPECT_EQ(tool({"verify", "dynamic.onnx", "--tuned", "--dim", "rows=1..64:1,32", "--dim", "rows=7"}).status, 0);
}

TEST_F(TuneTool, RefusesWhatItCannotDo) {
    for (const char* budget : {"0", "-5", "ten", "5x", "1e9", "nan s"}) {
        const Result r = tool({"tune", "model.onnx", std::string("--budget=") + budget});
        EXPECT_EQ(r.status, 2) << budget;
    }
    EXPECT_THAT(tool({"tune", "model.onnx", "--budget=5x"}).err, HasSubstr("90s"));
    for (const std::vector<std::string>& option :
         {std::vector<std::string>{"--measure"}, {"--scheduler", "search"}, {"--orchestrate", "optimal"}}) {
        std::vector<std::string> tune = {"tune", "model.onnx"}, run = {"run", "model.onnx", "--tuned"};
        tune.insert(tune.end(), option.begin(), option.end());
        run.insert(run.end(), option.begin(), option.end());
        EXPECT_EQ(tool(tune).status, 2) << option[0];
        EXPECT_EQ(tool(run).status, 2) << option[0];
    }
    EXPECT_TRUE(refused(tool({"tune", "nowhere.onnx"})));
    ASSERT_EQ(tool({"compile", "model.onnx", "-o", "model.so"}).status, 0);
    EXPECT_EQ(tool({"tune", "model.so"}).status, 2);
    EXPECT_THAT(place.run({"tune", "--help"}).out, HasSubstr("Examples:"));
}

}  // namespace
}  // namespace tilewright::tool_test
