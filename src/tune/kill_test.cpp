// kill -9 at any point of a tuning run: the database opens, what was finished is there, and is not measured again.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <random>
#include <set>

#include "base/hash.h"
#include "tune/canonical.h"
#include "tune/database.h"
#include "tune/temporary_folder_test.h"

extern char** environ;

namespace tilewright {
namespace {

constexpr int kCandidates = 400;

MeasurementKey key_of(int i) { return {"program k {\n}\n", "tile " + std::to_string(i), "machine", "threads=1", 1}; }

/// What a candidate's "measuring" comes to: a little work with one result.
double measured(int i) {
    uint64_t h = static_cast<uint64_t>(i);
    for (int k = 0; k < 2000; ++k) h = hash_mix(h + 1);
    return 1 + static_cast<double>(h % 1000);
}

void report(char what, int i) {
    const std::string line = std::string(1, what) + std::to_string(i) + "\n";
    if (write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(3);
}

/// The tuning run: for each candidate that the database does not know, "m" before it is measured, "d" when it is in.
int tune(const std::string& path) {
    TuningDatabase db(path);
    for (int i = 0; i < kCandidates; ++i) {
        if (db.find(key_of(i))) continue;
        report('m', i);
        Measurement m;
        m.key = key_of(i);
        m.seconds = {measured(i), 0, 31};
        db.insert(m);
        if (i % 10 == 0) {
            Choice c;
            c.key = {"program k {\n}\n", "machine", "test", std::to_string(i), 1};
            c.schedule = m.key.schedule;
            db.insert(c);
        }
        report('d', i);
    }
    return 0;
}

struct TuningRun {
    std::set<int> begun, done;
    bool finished = false;
};

/// Runs tune() in a process of its own and kills it `delay` microseconds after it reported `reports` lines; never where
/// it reports fewer.
TuningRun run_and_kill(const std::string& path, int reports, int delay) {
    int channel[2];
    if (pipe2(channel, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, channel[1], STDOUT_FILENO);
    std::string self = "/proc/self/exe", mode = "--tune", file = path;
    char* arguments[] = {self.data(), mode.data(), file.data(), nullptr};
    pid_t child = 0;
    const int failed = posix_spawn(&child, self.c_str(), &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(channel[1]);
    if (failed != 0) throw std::runtime_error("cannot start the tuning process");

    TuningRun run;
    std::string text;
    int lines = 0;
    const auto take = [&](char c) {
        text += c;
        if (c != '\n') return;
        (text[0] == 'm' ? run.begun : run.done).insert(std::stoi(text.substr(1)));
        text.clear();
        ++lines;
    };
    char c = 0;
    while (lines < reports && read(channel[0], &c, 1) == 1) take(c);
    if (lines >= reports) {
        usleep(static_cast<useconds_t>(delay));
        kill(child, SIGKILL);
    }
    while (read(channel[0], &c, 1) == 1) take(c);  // what it had said by then
    close(channel[0]);
    int status = 0;
    waitpid(child, &status, 0);
    run.finished = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    EXPECT_TRUE(run.finished || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) << "status " << status;
    return run;
}

TEST(Killed, at_random_points_loses_and_repeats_nothing) {
    constexpr int kKills = 20;
    const TemporaryFolder folder;
    const std::string path = folder / "tuning.db";
    std::mt19937 rng(20261122);
    std::set<int> done, begun;
    int killed = 0, measurements = 0;
    for (int k = 0; k < kKills; ++k) {
        // Some die while they open the file, most while they measure or insert.
        const int reports = k % 5 == 0 ? 0 : static_cast<int>(rng() % 30);
        const TuningRun run = run_and_kill(path, reports, static_cast<int>(rng() % (k % 5 == 0 ? 30000 : 400)));
        killed += run.finished ? 0 : 1;
        measurements += static_cast<int>(run.begun.size());
        for (const int i : run.begun) EXPECT_EQ(done.count(i), 0u) << "candidate " << i << " was measured again";
        done.insert(run.done.begin(), run.done.end());
        begun.insert(run.begun.begin(), run.begun.end());

        const TuningDatabase db(path);
        for (const int i : done) {
            const auto m = db.find(key_of(i));
            ASSERT_TRUE(m) << "candidate " << i << " was finished and is lost";
            EXPECT_EQ(m->seconds.value, measured(i));
        }
        std::set<std::string> keys;
        for (const Measurement& m : db.measurements()) {
            EXPECT_TRUE(keys.insert(m.key.schedule).second) << "two records of one key";
            EXPECT_EQ(m.seconds.samples, 31);
        }
    }
    EXPECT_GE(killed, kKills - 5) << "candidates are too few for so many kills";
    const TuningRun last = run_and_kill(path, 3 * kCandidates, 0);
    EXPECT_TRUE(last.finished);
    for (const int i : last.begun) EXPECT_EQ(done.count(i), 0u) << "candidate " << i << " was measured again";
    measurements += static_cast<int>(last.begun.size());
    EXPECT_EQ(TuningDatabase(path).measurements().size(), static_cast<size_t>(kCandidates));
    EXPECT_LE(measurements, kCandidates + killed) << "a kill costs the one measurement it interrupts";
    const TuningRun nothing = run_and_kill(path, 1, 0);
    EXPECT_TRUE(nothing.finished);
    EXPECT_TRUE(nothing.begun.empty());
}

}  // namespace
}  // namespace tilewright

/// The tests; or, as `tune_test --tune FILE`, the process that one of them kills.
int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], "--tune") == 0) return tilewright::tune(argv[2]);
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
