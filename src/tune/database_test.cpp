#include "tune/database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/temporary_folder_test.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

Measurement measurement(const std::string& stages, double seconds = 1e-3, int samples = 31) {
    Measurement m;
    m.key = {stages, "tile k {\n}\n", "0123456789abcdef", "threads=1 warmth=warm", kGeneratorVersion};
    m.seconds = {seconds, 0.02, samples};
    m.when = 1'700'000'000;
    return m;
}

Choice choice(const std::string& stages, double estimate = 2e-3) {
    Choice c;
    c.key = {stages, "0123456789abcdef", "construct", "budget=1", kGeneratorVersion};
    c.schedule = "tile k {\naxes a0=\"8\"\n}\n";
    c.estimate = estimate;
    c.when = 1'700'000'000;
    return c;
}

std::string error_of(const std::function<void()>& work) {
    try {
        work();
    } catch (const RuntimeError& e) {
        return e.what();
    }
    return "no error";
}

class Database : public testing::Test {
  protected:
    void write(const std::string& bytes) const { std::ofstream(file_, std::ios::binary | std::ios::trunc) << bytes; }

    TemporaryFolder folder_;
    std::string file_ = folder_ / "tuning.db";
};

TEST_F(Database, returns_inserted_records) {
    Measurement wrong = measurement("wrong");
    wrong.verdict = Verdict::wrong;
    wrong.reason = "element [3] is 2, expected 1";
    wrong.seconds = {};
    Choice c = choice("a");
    c.seconds = {1.25e-3, 0.01, 31};
    {
        TuningDatabase db(file_);
        EXPECT_EQ(db.find(measurement("a").key), std::nullopt);
        EXPECT_EQ(db.find(choice("a").key), std::nullopt);
        db.insert(measurement("a", 1.0 / 3));
        db.insert(wrong);
        db.insert(c);
        EXPECT_EQ(db.find(measurement("a").key), measurement("a", 1.0 / 3));
    }
    const TuningDatabase again(file_, {.must_exist = true});
    EXPECT_EQ(again.find(measurement("a").key), measurement("a", 1.0 / 3));
    EXPECT_EQ(again.find(wrong.key), wrong);
    EXPECT_EQ(again.find(c.key), c);
    EXPECT_EQ(again.measurements(), (std::vector<Measurement>{measurement("a", 1.0 / 3), wrong}));
    EXPECT_EQ(again.choices(), std::vector<Choice>{c});
}

TEST_F(Database, compares_every_field_of_a_key) {
    TuningDatabase db(file_);
    db.insert(measurement("a"));
    db.insert(choice("a"));
    const MeasurementKey m = measurement("a").key;
    const ChoiceKey c = choice("a").key;
    for (std::string MeasurementKey::*field :
         {&MeasurementKey::stages, &MeasurementKey::schedule, &MeasurementKey::target, &MeasurementKey::settings}) {
        MeasurementKey other = m;
        other.*field += ' ';
        EXPECT_EQ(db.find(other), std::nullopt);
    }
    for (std::string ChoiceKey::*field :
         {&ChoiceKey::stages, &ChoiceKey::target, &ChoiceKey::scheduler, &ChoiceKey::options}) {
        ChoiceKey other = c;
        other.*field += ' ';
        EXPECT_EQ(db.find(other), std::nullopt);
    }
    MeasurementKey m_next = m;
    ++m_next.generator;
    ChoiceKey c_next = c;
    ++c_next.generator;
    EXPECT_EQ(db.find(m_next), std::nullopt);
    EXPECT_EQ(db.find(c_next), std::nullopt);
    EXPECT_TRUE(db.find(m));
    EXPECT_TRUE(db.find(c));
}

/// The hash is only used for lookup; the texts are compared. With a constant hash function only the time may change.
TEST_F(Database, colliding_keys_are_separate_records) {
    const auto collide = [](std::string_view) { return Hash128{1, 2}; };
    TuningDatabase db(file_, {.hash = collide});
    for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(db.find(measurement(std::to_string(i)).key), std::nullopt) << "a collision is a miss";
        db.insert(measurement(std::to_string(i), 1 + i));
        db.insert(choice(std::to_string(i), 1 + i));
    }
    db.insert(measurement("7", 700));
    ASSERT_EQ(db.measurements().size(), 20u);
    for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(db.find(measurement(std::to_string(i)).key)->seconds.value, i == 7 ? 700 : 1 + i);
        EXPECT_EQ(db.find(choice(std::to_string(i)).key)->estimate, 1 + i);
    }
}

TEST_F(Database, texts_of_a_key_are_delimited) {
    const auto key = [](const char* stages, const char* schedule) {
        Measurement m = measurement(stages);
        m.key.schedule = schedule;
        return m;
    };
    std::vector<std::string> seen;
    TuningDatabase db(file_, {.hash = [&](std::string_view text) {
                          seen.emplace_back(text);
                          return structural_hash(text);
                      }});
    db.insert(key("ab", "c"));
    db.insert(key("a", "bc"));
    EXPECT_NE(seen[0], seen[1]);
    EXPECT_EQ(db.measurements().size(), 2u);
}

TEST(StructuralHash, distinguishes_texts_in_both_halves) {
    std::set<uint64_t> high, low;
    std::string text;
    for (int length = 0; length < 40; ++length, text += 'x') {
        for (int c = 0; c < 256; ++c) {
            const Hash128 h = structural_hash(text + static_cast<char>(c));
            high.insert(h.high);
            low.insert(h.low);
        }
    }
    EXPECT_EQ(high.size(), 40u * 256u);
    EXPECT_EQ(low.size(), 40u * 256u);
    EXPECT_EQ(structural_hash("stable"), structural_hash("stable"));
}

TEST_F(Database, a_second_insert_of_a_key_replaces_the_first) {
    TuningDatabase db(file_);
    db.insert(measurement("a", 1, 31));
    db.insert(measurement("a", 2, 5));
    db.insert(choice("a", 1));
    db.insert(choice("a", 2));
    EXPECT_EQ(db.measurements(), std::vector<Measurement>{measurement("a", 2, 5)});
    EXPECT_EQ(db.choices(), std::vector<Choice>{choice("a", 2)});
}

TEST_F(Database, an_insert_without_a_time_uses_the_current_time) {
    TuningDatabase db(file_);
    Measurement m = measurement("a");
    m.when = 0;
    db.insert(m);
    EXPECT_GT(db.find(m.key)->when, 1'750'000'000);
}

TEST_F(Database, merge_keeps_the_more_reliable) {
    Measurement wrong = measurement("wrong"), failed = measurement("failed");
    wrong.verdict = Verdict::wrong;
    failed.verdict = Verdict::failed;
    wrong.seconds = failed.seconds = {};
    TuningDatabase db(file_);
    db.insert(measurement("few", 1, 5));
    db.insert(measurement("many", 1, 31));
    db.insert(wrong);
    db.insert(failed);
    db.insert(choice("a", 1));
    Choice measured = choice("a", 3);
    measured.seconds = {1e-3, 0, 5};
    EXPECT_EQ(db.merge({measurement("few", 2, 31), measurement("many", 2, 5), measurement("wrong"),
                        measurement("failed"), measurement("new")},
                       {measured, choice("b")}),
              5);
    EXPECT_EQ(db.find(measurement("few").key)->seconds.value, 2);
    EXPECT_EQ(db.find(measurement("many").key)->seconds.value, 1);
    EXPECT_EQ(db.find(wrong.key)->verdict, Verdict::wrong);
    EXPECT_EQ(db.find(failed.key)->verdict, Verdict::measured);
    EXPECT_TRUE(db.find(measurement("new").key));
    EXPECT_EQ(db.find(choice("a").key), measured);
    EXPECT_EQ(db.merge(db.measurements(), db.choices()), 0) << "what is there already is not better founded";
}

TEST_F(Database, prune_removes_matching_records) {
    TuningDatabase db(file_);
    Measurement old = measurement("old"), other = measurement("generator"), elsewhere = measurement("target"),
                failed = measurement("failed");
    old.when = 1000;
    other.key.generator = kGeneratorVersion + 1;
    elsewhere.key.target = "another";
    failed.verdict = Verdict::failed;
    Choice old_choice = choice("old");
    old_choice.when = 1000;
    db.merge({old, other, elsewhere, failed, measurement("a")}, {old_choice, choice("a")});
    EXPECT_EQ(db.prune({}).measurements, 0);
    const PruneCount would = db.prune({.older_than = 2000, .dry_run = true});
    EXPECT_EQ(would.measurements, 1);
    EXPECT_EQ(would.choices, 1);
    EXPECT_EQ(db.measurements().size(), 5u);
    const PruneCount aged = db.prune({.older_than = 2000});
    EXPECT_EQ(aged.measurements, 1);
    EXPECT_EQ(aged.choices, 1);
    EXPECT_EQ(db.find(old.key), std::nullopt);
    EXPECT_EQ(db.prune({.other_generators_than = kGeneratorVersion}).measurements, 1);
    EXPECT_EQ(db.prune({.other_targets_than = measurement("a").key.target}).measurements, 1);
    EXPECT_EQ(db.prune({.failed = true}).measurements, 1);
    EXPECT_EQ(db.measurements(), std::vector<Measurement>{measurement("a")});
    EXPECT_EQ(db.choices(), std::vector<Choice>{choice("a")});
}

TEST_F(Database, threads_and_connections_share_one_file) {
    constexpr int kThreads = 4, kEach = 25;
    TuningDatabase shared(file_);
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
            TuningDatabase own(file_);
            TuningDatabase& db = t % 2 == 0 ? shared : own;
            for (int i = 0; i < kEach; ++i) {
                const Measurement m = measurement(std::to_string(t) + "/" + std::to_string(i));
                EXPECT_EQ(db.find(m.key), std::nullopt);
                db.insert(m);
                EXPECT_EQ(db.find(m.key), m);
            }
        });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(shared.measurements().size(), static_cast<size_t>(kThreads * kEach));
}

/// All of them find no file, and all try to create the tables.
TEST_F(Database, several_may_open_a_new_file_at_once) {
    for (int round = 0; round < 5; ++round) {
        for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(file_ + suffix);
        std::vector<std::thread> threads;
        threads.reserve(6);
        for (int t = 0; t < 6; ++t)
            threads.emplace_back([&, t] { TuningDatabase(file_).insert(measurement(std::to_string(t))); });
        for (std::thread& t : threads) t.join();
        EXPECT_EQ(TuningDatabase(file_).measurements().size(), 6u);
    }
}

TEST_F(Database, creates_a_file_only_if_allowed) {
    EXPECT_THAT(error_of([&] { TuningDatabase(file_, {.must_exist = true}); }), HasSubstr("no tuning database at"));
    EXPECT_THAT(error_of([&] { TuningDatabase(file_, {.read_only = true}); }), HasSubstr("no tuning database at"));
    EXPECT_FALSE(std::filesystem::exists(file_));
    TuningDatabase(file_ + ".d/deep/tuning.db").insert(measurement("a"));
    EXPECT_EQ(TuningDatabase(file_ + ".d/deep/tuning.db", {.read_only = true}).measurements().size(), 1u);
    write("");  // an empty file, as of mktemp, becomes a database
    TuningDatabase(file_).insert(measurement("a"));
    EXPECT_EQ(TuningDatabase(file_).measurements().size(), 1u);
}

TEST_F(Database, refuses_other_files_without_changing_them) {
    const std::string text(5000, 'x');
    write(text);
    EXPECT_THAT(error_of([&] { TuningDatabase db(file_); }), HasSubstr("is not a tuning database"));
    EXPECT_EQ(read_whole(file_), text);

    std::filesystem::remove(file_);
    sqlite3* other = nullptr;
    ASSERT_EQ(sqlite3_open(file_.c_str(), &other), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(other, "CREATE TABLE other (a)", nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(other);
    const std::string before = read_whole(file_);
    EXPECT_THAT(error_of([&] { TuningDatabase db(file_); }), HasSubstr("another program"));
    EXPECT_EQ(read_whole(file_), before);

    EXPECT_THAT(error_of([&] { TuningDatabase db(std::filesystem::path(file_).parent_path().string()); }),
                HasSubstr("expected a regular file"));
    EXPECT_THAT(error_of([&] { TuningDatabase db(file_ + "/tuning.db"); }), HasSubstr("cannot"));
}

TEST_F(Database, refuses_a_newer_format) {
    { const TuningDatabase db(file_); }
    sqlite3* handle = nullptr;
    ASSERT_EQ(sqlite3_open(file_.c_str(), &handle), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(handle, "PRAGMA user_version=99", nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(handle);
    const std::string error = error_of([&] { TuningDatabase db(file_); });
    EXPECT_THAT(error, HasSubstr("made by a newer Tilewright"));
    EXPECT_THAT(error, HasSubstr("99"));
}

/// Wherever the file is overwritten: an error that names it, or readable records; never a crash, and the file is kept.
TEST_F(Database, a_damaged_file_is_an_error_with_a_remedy) {
    {
        TuningDatabase db(file_);
        for (int i = 0; i < 300; ++i) db.insert(measurement(std::string(200, 's') + std::to_string(i)));
        db.prune({.older_than = 1, .other_targets_than = "0123456789abcdef"});
    }
    const std::string whole = read_whole(file_);
    ASSERT_GT(whole.size(), 50'000u);
    int errors = 0;
    for (size_t at = 100; at < whole.size(); at += whole.size() / 23) {
        for (const char* suffix : {"-wal", "-shm"}) std::filesystem::remove(file_ + suffix);
        std::string bytes = whole;
        for (size_t k = at; k < std::min(at + 6000, bytes.size()); ++k) bytes[k] = static_cast<char>(k * 131 >> 3);
        write(bytes);
        const std::string error = error_of([&] {
            TuningDatabase db(file_);
            for (const Measurement& m : db.measurements()) db.find(m.key);
            db.insert(measurement("new"));
        });
        if (error == "no error") continue;
        ++errors;
        EXPECT_THAT(error, HasSubstr(file_));
        EXPECT_THAT(error, testing::AnyOf(HasSubstr("move"), HasSubstr("name another file")));
        EXPECT_TRUE(std::filesystem::exists(file_));
    }
    EXPECT_GT(errors, 10);
    std::filesystem::resize_file(file_, 5000);
    EXPECT_THAT(error_of([&] { TuningDatabase(file_).measurements(); }), HasSubstr("move"));
}

TEST_F(Database, waits_for_locks_and_reports_timeouts) {
    TuningDatabase db(file_, {.busy_seconds = 1});
    sqlite3* other = nullptr;
    ASSERT_EQ(sqlite3_open(file_.c_str(), &other), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
    EXPECT_EQ(db.find(measurement("a").key), std::nullopt) << "readers do not wait for a writer";
    EXPECT_THAT(error_of([&] { db.insert(measurement("a")); }), HasSubstr("another process kept it locked"));
    std::thread soon([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        sqlite3_exec(other, "COMMIT", nullptr, nullptr, nullptr);
    });
    db.insert(measurement("a"));
    soon.join();
    sqlite3_close(other);
    EXPECT_TRUE(db.find(measurement("a").key));
}

/// Under a file size limit a write fails, and neither ends the process nor loses existing records.
TEST_F(Database, reports_a_full_disk) {
    { TuningDatabase(file_).insert(measurement("first")); }
    const pid_t child = ::fork();
    if (child == 0) {
        const rlimit none{0, 0}, small{60000, 60000};
        ::setrlimit(RLIMIT_CORE, &none);
        ::setrlimit(RLIMIT_FSIZE, &small);
        TuningDatabase db(file_);
        int kept = 0;
        try {
            for (; kept < 100; ++kept) db.insert(measurement(std::string(5000, 'x') + std::to_string(kept)));
        } catch (const CannotKeep& e) {
            const bool warned =
                std::string(e.what()).find(file_ + ": the disk is full, a file size") != std::string::npos;
            ::_exit(e.full() && warned && kept > 0 && db.find(measurement("first").key) ? 0 : 1);
        }
        ::_exit(2);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "exit status or signal";
    TuningDatabase db(file_);
    EXPECT_TRUE(db.find(measurement("first").key));
    db.insert(measurement("later"));
    EXPECT_TRUE(db.find(measurement("later").key));
}

TEST_F(Database, invalid_times_are_refused) {
    TuningDatabase db(file_);
    EXPECT_THROW(db.insert(measurement("a", std::numeric_limits<double>::quiet_NaN())), InternalError);
    EXPECT_THROW(db.insert(measurement("a", -1)), InternalError);
    EXPECT_THROW(db.insert(choice("a", std::numeric_limits<double>::infinity())), InternalError);
    EXPECT_EQ(db.measurements().size() + db.choices().size(), 0u);
    db.insert(measurement("a"));
}

}  // namespace
}  // namespace tilewright
