// kill -9 at any point of a tuning run: the database opens, finished records are in it, and are not measured again.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <set>

#include "base/hash.h"
#include "base/temporary_folder_test.h"
#include "tune/canonical.h"
#include "tune/database.h"

namespace tilewright {
namespace {

constexpr int kMostAtOnce = 25;                     // completed by a run before it is killed
constexpr int kCandidates = 20 * kMostAtOnce + 20;  // more than all killed runs complete together

MeasurementKey key_of(int i) { return {"program k {\n}\n", "tile " + std::to_string(i), "machine", "threads=1", 1}; }

/// Stands for a measurement: a little work with one result.
double measured(int i) {
    uint64_t h = static_cast<uint64_t>(i);
    for (int k = 0; k < 2000; ++k) h = hash_mix(h + 1);
    return 1 + static_cast<double>(h % 1000);
}

void report(char what, int i) {
    const std::string line = std::string(1, what) + std::to_string(i) + "\n";
    if (write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(3);
}

/// The tuning run: for each candidate that is not in the database, prints "m" before it is measured, "d" when it is
/// stored. Each step needs a byte of standard input, so that the run cannot end before it is killed.
int tune(const std::string& path) {
    TuningDatabase db(path);
    for (int i = 0; i < kCandidates; ++i) {
        if (db.find(key_of(i))) continue;
        char go = 0;
        if (read(STDIN_FILENO, &go, 1) != 1) return 4;
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

/// Runs tune() in its own process, for at most `candidates` new ones. With a `delay` it is killed that many
/// microseconds after the start of the first of them (or, if there are none, after its own start).
TuningRun run_tuning(const std::string& path, int candidates, std::optional<int> delay) {
    int reports[2], goes[2];
    if (pipe2(reports, O_CLOEXEC) != 0 || pipe2(goes, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, goes[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, reports[1], STDOUT_FILENO);
    std::string self = "/proc/self/exe", mode = "--tune", file = path;
    char* arguments[] = {self.data(), mode.data(), file.data(), nullptr};
    pid_t child = 0;
    const int failed = posix_spawn(&child, self.c_str(), &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(reports[1]);
    if (failed != 0) throw std::runtime_error("cannot start the tuning process");

    TuningRun run;
    std::string text;
    const auto take = [&](char c) {
        text += c;
        if (c != '\n') return;
        (text[0] == 'm' ? run.begun : run.done).insert(std::stoi(text.substr(1)));
        text.clear();
    };
    const std::string go(static_cast<size_t>(candidates), 'g');
    EXPECT_EQ(write(goes[1], go.data(), go.size()), static_cast<ssize_t>(go.size()));
    char c = 0;
    if (delay) {
        while (candidates > 0 && run.begun.empty() && read(reports[0], &c, 1) == 1) take(c);
        usleep(static_cast<useconds_t>(*delay));
        kill(child, SIGKILL);
    }
    while (read(reports[0], &c, 1) == 1) take(c);  // the output before it was killed
    for (const int end : {reports[0], goes[0], goes[1]}) close(end);
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
    int killed = 0, measurements = 0, interrupted = 0;
    for (int k = 0; k < kKills; ++k) {
        // Some die while they open the file, most while they measure or insert.
        const bool opening = k % 5 == 0;
        const TuningRun run =
            run_tuning(path, opening ? 0 : kMostAtOnce, static_cast<int>(rng() % (opening ? 30000 : 3000)));
        killed += run.finished ? 0 : 1;
        measurements += static_cast<int>(run.begun.size());
        interrupted += run.begun.size() > run.done.size() ? 1 : 0;
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
    EXPECT_EQ(killed, kKills);
    const TuningRun last = run_tuning(path, kCandidates, std::nullopt);
    EXPECT_TRUE(last.finished);
    for (const int i : last.begun) EXPECT_EQ(done.count(i), 0u) << "candidate " << i << " was measured again";
    measurements += static_cast<int>(last.begun.size());
    EXPECT_EQ(TuningDatabase(path).measurements().size(), static_cast<size_t>(kCandidates));
    EXPECT_LE(measurements, kCandidates + interrupted) << "a kill costs the one measurement it interrupts";
    const TuningRun nothing = run_tuning(path, 1, std::nullopt);
    EXPECT_TRUE(nothing.finished);
    EXPECT_TRUE(nothing.begun.empty());
}

}  // namespace
}  // namespace tilewright

/// Runs the tests; with `tune_test --tune FILE`, is the process that a test kills.
int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], "--tune") == 0) return tilewright::tune(argv[2]);
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
