#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cost/estimate.h"
#include "cost/target.h"
#include "schedule/default_schedule.h"
#include "tool/tool_runner_test.h"
#include "tune/boosted_trees.h"
#include "tune/canonical.h"
#include "tune/database.h"

namespace tilewright::tool_test {
namespace {

using testing::HasSubstr;
using testing::Not;

Measurement measurement(const std::string& shape, double seconds, int samples = 31) {
    Measurement m;
    m.key = {"program k {\n  input v0: f32[" + shape + "]\n  v1: f32[" + shape + "] = [" + shape +
                 "] neg(@0) where @0 = v0[i0]\n  output v1\n}\n",
             "tile k {\n}\n", "0123456789abcdef", "threads=1 warmth=warm", kGeneratorVersion};
    m.seconds = {seconds, 0.02, samples};
    m.when = 1'700'000'000;
    return m;
}

class DbCommand : public testing::Test {
  protected:
    DbCommand() {
        TuningDatabase db(place_ / "tuning.db");
        db.insert(measurement("8", 1e-6));
        Measurement wrong = measurement("16", 0, 0);
        wrong.verdict = Verdict::wrong;
        wrong.reason = "output v1, element [3] is 2, expected 1";
        wrong.seconds = {};
        db.insert(wrong);
        Measurement here = measurement("32", 3e-6);
        here.key.target = target_key(host_target());
        here.when = 0;
        db.insert(here);
        Choice c;
        c.key = {measurement("8", 0).key.stages, "0123456789abcdef", "construct", "budget=1", kGeneratorVersion};
        c.schedule = "tile k {\n}\n";
        c.estimate = 2e-6;
        c.when = 1'700'000'000;
        db.insert(c);
    }
    Result db(std::vector<std::string> arguments, const std::string& file = "tuning.db",
              const std::string& option = "--db") const {
        arguments.insert(arguments.begin(), "db");
        arguments.insert(arguments.begin() + 2, {option, file});
        return place_.run(arguments);
    }

    Workplace place_;
};

TEST_F(DbCommand, list_shows_all_records) {
    const Result r = db({"list"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.out, db({"list"}, "tuning.db", "--database").out);  // the option's name in other commands
    EXPECT_THAT(r.out, HasSubstr("1.00 +-1%"));
    EXPECT_THAT(r.out, HasSubstr("f32[8]"));
    EXPECT_THAT(r.out, HasSubstr("f32[16]: output v1, element [3] is 2"));
    EXPECT_THAT(r.out, HasSubstr("2023-11-14"));
    EXPECT_THAT(r.out, HasSubstr("construct budget=1"));
    EXPECT_THAT(r.out, HasSubstr("3 measurements, 1 choices"));
}

TEST_F(DbCommand, list_filters_and_writes_json) {
    EXPECT_THAT(db({"list", "--verdict", "wrong"}).out, HasSubstr("1 measurements, 0 choices"));
    EXPECT_THAT(db({"list", "--target", "this"}).out, HasSubstr("1 measurements, 0 choices"));
    EXPECT_THAT(db({"list", "--limit", "1"}).out, HasSubstr("and 2 more"));
    const std::string out = db({"list", "--limit", "1"}).out;
    EXPECT_THAT(out, HasSubstr("f32[8]"));
    EXPECT_THAT(out, Not(HasSubstr("f32[16]")));
    const std::string number = out.substr(out.find('\n') + 1, 8);
    EXPECT_THAT(db({"list", "--kernel", number}).out, HasSubstr("1 measurements, 1 choices"));
    ASSERT_EQ(db({"list", "--json", "list.json"}).status, 0);
    const auto json = nlohmann::json::parse(place_.read("list.json"));
    EXPECT_EQ(json.at("measurements").size(), 3u);
    EXPECT_EQ(json.at("choices").at(0).at("scheduler"), "construct");
}

TEST_F(DbCommand, exported_records_can_be_merged) {
    ASSERT_EQ(db({"export", "records.jsonl"}).status, 0);
    EXPECT_EQ(db({"export"}).out, place_.read("records.jsonl"));
    const Result r = db({"merge", "records.jsonl"}, "copy.db");
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("records.jsonl: 4 of 4 records came in"));
    EXPECT_EQ(TuningDatabase(place_ / "copy.db").measurements(), TuningDatabase(place_ / "tuning.db").measurements());
    EXPECT_EQ(TuningDatabase(place_ / "copy.db").choices(), TuningDatabase(place_ / "tuning.db").choices());
    EXPECT_THAT(db({"merge", "tuning.db"}, "copy.db").out, HasSubstr("tuning.db: 0 of 4 records came in"));
    TuningDatabase(place_ / "better.db").insert(measurement("8", 2e-6, 40));
    EXPECT_THAT(db({"merge", "better.db"}).out, HasSubstr("better.db: 1 of 1 records came in"));
    EXPECT_THAT(db({"list"}).out, HasSubstr("2.00 +-1%"));
}

TEST_F(DbCommand, an_unreadable_file_leaves_the_database_unchanged) {
    ASSERT_EQ(db({"export", "records.jsonl"}).status, 0);
    place_.folder.write("bad.jsonl", "{\"format\":1}\n");
    const Result r = db({"merge", "records.jsonl", "bad.jsonl"}, "copy.db");
    EXPECT_TRUE(refused(r));
    EXPECT_THAT(r.err, HasSubstr("bad.jsonl, line 1: no field 'kind'"));
    EXPECT_FALSE(place_.exists("copy.db"));
}

TEST_F(DbCommand, prune_removes_matching_records) {
    EXPECT_THAT(db({"prune", "--older-than", "30", "--dry-run"}).out,
                HasSubstr("2 measurements and 1 choices would go"));
    EXPECT_THAT(db({"list"}).out, HasSubstr("3 measurements, 1 choices"));
    EXPECT_THAT(db({"prune", "--other-targets"}).out, HasSubstr("2 measurements and 1 choices removed"));
    EXPECT_THAT(db({"list"}).out, HasSubstr("1 measurements, 0 choices"));
    EXPECT_EQ(db({"prune"}).status, 2);
}

TEST_F(DbCommand, learn_refuses_few_measurements) {
    const Result r = db({"learn"});
    EXPECT_TRUE(refused(r));
    EXPECT_THAT(r.err, HasSubstr("measurements of this machine, and 50 are the least"));
}

TEST_F(DbCommand, learn_corrects_estimates_until_it_is_told_to_forget) {
    if (!has_boosted_trees()) GTEST_SKIP() << "no XGBoost (package libxgboost0)";
    Target target = host_target();
    target.workers = 1;
    {
        TuningDatabase all(place_ / "all.db");
        for (int rows = 16; rows < 96; ++rows) {
            const TileProgram kernel =
                default_schedule(parse_program(fmt::format(
                                     "program k {{\n  input x: f32[{0}, 64]\n  out: f32[{0}, 64] = [{0}, 64] neg(@0) "
                                     "where @0 = x[i0, i1]\n  output out\n}}\n",
                                     rows)),
                                 target);
            Measurement m;
            m.key = {canonical_text(kernel.stages), schedule_text(kernel), target_key(target),
                     "threads=1 warmth=warm weights=0"};
            m.seconds = {2 * estimate(kernel, target).seconds, 0.01, 31};
            all.insert(m);
        }
    }
    const Result dry = db({"learn", "--threads", "1", "--dry-run"}, "all.db");
    EXPECT_EQ(dry.status, 0) << dry.err;
    EXPECT_THAT(dry.out, HasSubstr("80 measurements of 80 kernels on 1 thread"));
    EXPECT_THAT(dry.out, Not(HasSubstr("kept in")));
    const Result r = db({"learn", "--threads", "1", "--json", "learned.json"}, "all.db");
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("kept in"));
    const auto json = nlohmann::json::parse(place_.read("learned.json"));
    EXPECT_GT(json.at("error_before").get<double>(), 1.3) << "the tool's rates may be others than these";
    EXPECT_LT(json.at("error_after").get<double>(), 1.05);
    EXPECT_THAT(db({"learn", "--threads", "1", "--forget"}, "all.db").out, HasSubstr("removed"));
    EXPECT_THAT(db({"learn", "--threads", "1", "--forget"}, "all.db").out, HasSubstr("nothing was learned"));
}

TEST_F(DbCommand, errors_name_the_cause) {
    const Result none = db({"list"}, "nowhere.db");
    EXPECT_TRUE(refused(none));
    EXPECT_THAT(none.err, HasSubstr("no tuning database at nowhere.db"));
    EXPECT_FALSE(place_.exists("nowhere.db"));
    place_.folder.write("text.db", std::string(3000, 'x'));
    EXPECT_TRUE(refused(db({"list"}, "text.db")));
    EXPECT_TRUE(refused(db({"merge", "nowhere.jsonl"})));
    EXPECT_EQ(place_.run({"db"}).status, 2);
    EXPECT_EQ(place_.run({"db", "forget"}).status, 2);
    EXPECT_THAT(place_.run({"db", "prune", "--help"}).out, HasSubstr("Examples:"));
}

}  // namespace
}  // namespace tilewright::tool_test
