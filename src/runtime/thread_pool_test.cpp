#include "runtime/thread_pool.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "runtime/float_mode.h"

namespace tilewright {
namespace {

using namespace std::chrono_literals;

struct Call {
    int64_t begin, end;
    int worker;
    friend bool operator==(const Call&, const Call&) = default;
};

/// The calls into which a loop of `tasks` was cut, in the order of the tasks.
std::vector<Call> calls_of(ThreadPool& pool, int64_t tasks) {
    std::mutex mutex;
    std::vector<Call> calls;
    parallel_for(pool, tasks, [&](int64_t begin, int64_t end, int worker) {
        const std::lock_guard lock(mutex);
        calls.push_back({begin, end, worker});
    });
    std::sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) { return a.begin < b.begin; });
    return calls;
}

std::chrono::microseconds cpu_time() {
    rusage u{};
    getrusage(RUSAGE_SELF, &u);
    return std::chrono::seconds(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           std::chrono::microseconds(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

RC_GTEST_PROP(WorkerRange, CutsAllTasksIntoContiguousEvenRanges, ()) {
    const auto tasks = *rc::gen::inRange<int64_t>(0, 1000000);
    const auto workers = *rc::gen::inRange(1, 200);
    int64_t next = 0;
    int64_t before = tasks;
    for (int w = 0; w < workers; ++w) {
        const TaskRange r = worker_range(tasks, workers, w);
        RC_ASSERT(r.begin == next);
        const int64_t size = r.end - r.begin;
        RC_ASSERT(size == tasks / workers || size == tasks / workers + 1);
        RC_ASSERT(size <= before);
        before = size;
        next = r.end;
    }
    RC_ASSERT(next == tasks);
}

TEST(WorkerRange, HandlesTheLargestCounts) {
    constexpr int64_t kTasks = std::numeric_limits<int64_t>::max();
    EXPECT_EQ(worker_range(kTasks, kMaxThreads, 0).begin, 0);
    EXPECT_EQ(worker_range(kTasks, kMaxThreads, kMaxThreads - 1).end, kTasks);
    EXPECT_EQ(worker_range(10, 4, 2), (TaskRange{6, 8}));
}

class Pools : public testing::TestWithParam<int> {};

/// Every task once, each call within the share of one worker.
void expect_cut_of(const std::vector<Call>& calls, int64_t tasks, int active) {
    int64_t next = 0;
    for (const Call& c : calls) {
        EXPECT_EQ(c.begin, next);
        EXPECT_LT(c.begin, c.end);
        EXPECT_TRUE(c.worker >= 0 && c.worker < active) << c.worker;
        bool within = false;
        for (int w = 0; w < active; ++w) {
            const TaskRange share = worker_range(tasks, active, w);
            within = within || (c.begin >= share.begin && c.end <= share.end);
        }
        EXPECT_TRUE(within) << c.begin << " to " << c.end << " of " << tasks;
        next = c.end;
    }
    EXPECT_EQ(next, tasks);
}

/// Polls until the pool's own threads take part; they need not take part in every single loop.
bool shares_out(ThreadPool& pool) {
    for (int round = 0; round < 1000; ++round) {
        std::atomic<bool> helped{false};
        parallel_for(pool, 2, [&](int64_t, int64_t, int worker) {
            if (worker != 0) helped = true;
            if (worker == 0) std::this_thread::sleep_for(100us);
        });
        if (helped) return true;
    }
    return false;
}

TEST_P(Pools, RunEveryTaskOnceInPiecesOfTheSharesTheSplitNames) {
    ThreadPool pool(GetParam());
    ASSERT_EQ(pool.size(), GetParam());
    for (const int64_t tasks : {1, 2, 3, 7, 8, 64, 1001}) {
        const int active = static_cast<int>(std::min<int64_t>(tasks, pool.size()));
        for (int repeat = 0; repeat < 20; ++repeat) expect_cut_of(calls_of(pool, tasks), tasks, active);
    }
}

TEST_P(Pools, StealFromADelayedWorker) {
    ThreadPool pool(GetParam());
    // A worker holds its first chunk until the others have finished everything else, including its own share.
    for (int round = 0; round < 20; ++round) {
        std::atomic<int64_t> done{0};
        std::atomic<bool> held{false};
        const int64_t tasks = 8 * pool.size();
        std::atomic<int64_t> mine{0};
        parallel_for(pool, tasks, [&](int64_t begin, int64_t end, int worker) {
            if (pool.size() > 1 && worker != 0 && !held.exchange(true)) {
                mine = end - begin;
                EXPECT_LT(mine, 8) << "a piece of the share";
                const auto give_up = std::chrono::steady_clock::now() + 10s;
                while (done < tasks - mine && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
                EXPECT_EQ(done, tasks - mine);
            }
            done += end - begin;
        });
        EXPECT_EQ(done, tasks);
    }
}

TEST_P(Pools, RunNothingWithoutTasks) {
    ThreadPool pool(GetParam());
    EXPECT_TRUE(calls_of(pool, 0).empty());
    EXPECT_TRUE(calls_of(pool, -3).empty());
}

TEST_P(Pools, OrderWritesOfCallersAndTasks) {
    ThreadPool pool(GetParam());
    constexpr int64_t kTasks = 37;
    std::vector<int64_t> in(kTasks), out(kTasks);  // plain memory: only the pool orders the accesses
    for (int64_t round = 0; round < 3000; ++round) {
        for (int64_t& v : in) v = round;
        const int64_t tasks = 1 + round % kTasks;
        parallel_for(pool, tasks, [&](int64_t begin, int64_t end, int) {
            for (int64_t i = begin; i < end; ++i)
                out[static_cast<size_t>(i)] = in[static_cast<size_t>(kTasks - 1 - i)] + i;
        });
        for (int64_t i = 0; i < tasks; ++i) ASSERT_EQ(out[static_cast<size_t>(i)], round + i);
    }
}

TEST_P(Pools, WakeWorkersThatSleep) {
    ThreadPool pool(GetParam());
    for (int round = 0; round < 20; ++round) {
        std::this_thread::sleep_for(round % 2 == 0 ? 2ms : 0ms);
        std::atomic<int64_t> sum{0};
        parallel_for(pool, 100, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
        EXPECT_EQ(sum, 100);
    }
}

TEST_P(Pools, WakeOnlySomeAndThenAll) {
    // Sleepers that are not needed for a small job must still be woken for the next large one.
    ThreadPool pool(GetParam());
    for (int round = 0; round < 200; ++round) {
        if (round % 10 == 0) std::this_thread::sleep_for(1ms);
        const int64_t tasks = round % 3 == 2 ? 1000 : 2;
        std::atomic<int64_t> sum{0};
        parallel_for(pool, tasks, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
        ASSERT_EQ(sum, tasks);
    }
}

TEST_P(Pools, WaitForATaskThatTakesLongerThanTheyPoll) {
    ThreadPool pool(GetParam());
    std::atomic<int> done{0};
    parallel_for(pool, pool.size(), [&](int64_t begin, int64_t end, int worker) {
        if (worker != 0) std::this_thread::sleep_for(3ms);
        done += static_cast<int>(end - begin);
    });
    EXPECT_EQ(done, pool.size());
}

TEST_P(Pools, RunNestedLoopsSeriallyUnderTheSameWorker) {
    ThreadPool pool(GetParam());
    std::atomic<int> wrong{0};
    std::atomic<int64_t> inner_tasks{0};
    parallel_for(pool, 24, [&](int64_t begin, int64_t end, int worker) {
        for (int64_t i = begin; i < end; ++i) {
            const auto thread = std::this_thread::get_id();
            parallel_for(pool, 10, [&](int64_t b, int64_t e, int inner_worker) {
                if (b != 0 || e != 10 || inner_worker != worker || std::this_thread::get_id() != thread) ++wrong;
                inner_tasks += e - b;
            });
        }
    });
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(inner_tasks, 240);
    // and the pool is usable again for loops that are not nested
    EXPECT_TRUE(pool.size() == 1 || shares_out(pool));
}

TEST_P(Pools, ServeManyCallersAtATime) {
    ThreadPool pool(GetParam());
    constexpr int kCallers = 5, kRounds = 400;
    constexpr int64_t kTasks = 50;
    std::atomic<int> wrong{0};
    std::vector<std::thread> callers;
    callers.reserve(kCallers);
    for (int c = 0; c < kCallers; ++c)
        callers.emplace_back([&, c] {
            std::vector<int64_t> out(kTasks);
            for (int64_t round = 0; round < kRounds; ++round) {
                // Scratch per worker number: if two threads ran one caller's loop under one number, they would collide.
                std::vector<std::atomic<int>> inside(static_cast<size_t>(pool.size()));
                parallel_for(pool, kTasks, [&](int64_t begin, int64_t end, int worker) {
                    if (inside[static_cast<size_t>(worker)].fetch_add(1) != 0) ++wrong;
                    for (int64_t i = begin; i < end; ++i) out[static_cast<size_t>(i)] = i * round + c;
                    inside[static_cast<size_t>(worker)].fetch_sub(1);
                });
                for (int64_t i = 0; i < kTasks; ++i)
                    if (out[static_cast<size_t>(i)] != i * round + c) ++wrong;
            }
        });
    for (std::thread& t : callers) t.join();
    EXPECT_EQ(wrong, 0);
}

TEST_P(Pools, StartAndStopQuicklyInAnyState) {
    for (int round = 0; round < 30; ++round) {
        ThreadPool pool(GetParam());
        if (round % 3 == 1) calls_of(pool, 5);
        if (round % 3 == 2) std::this_thread::sleep_for(500us);
    }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Pools, testing::Values(1, 2, 3, 8, 40),
                         [](const auto& size) { return "Threads" + std::to_string(size.param); });

TEST(ThreadPool, ACallerThatFindsTheWorkersBusyRunsAlone) {
    ThreadPool pool(2);
    std::atomic<bool> holding{false}, release{false};
    std::thread holder([&] {
        parallel_for(pool, 2, [&](int64_t, int64_t, int) {
            holding = true;
            while (!release) std::this_thread::yield();
        });
    });
    while (!holding) std::this_thread::yield();
    EXPECT_EQ(calls_of(pool, 100), (std::vector<Call>{{0, 100, 0}}));
    release = true;
    holder.join();
    EXPECT_TRUE(shares_out(pool));
}

TEST(ThreadPool, ALoopOfOneTaskCountsAsATask) {
    ThreadPool pool(2);
    parallel_for(pool, 1, [&](int64_t, int64_t, int) { EXPECT_EQ(calls_of(pool, 8), (std::vector<Call>{{0, 8, 0}})); });
    EXPECT_TRUE(shares_out(pool));
}

TEST(ThreadPool, ATaskMayUseAnotherPool) {
    ThreadPool outer(2), inner(2);
    std::atomic<int64_t> sum{0};
    parallel_for(outer, 2, [&](int64_t, int64_t, int) {
        parallel_for(inner, 10, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
    });
    EXPECT_EQ(sum, 20);
}

TEST(ThreadPool, UsesNoCpuOnceItSleeps) {
    ThreadPool pool(4);
    calls_of(pool, 100);
    std::this_thread::sleep_for(50ms);
    const auto before = cpu_time();
    std::this_thread::sleep_for(500ms);
    EXPECT_LT(cpu_time() - before, 5ms);  // 1 % of the time slept
}

TEST(ThreadPool, PollsOnlyAShortTimeBeforeItSleeps) {
    ThreadPool pool(2);
    const auto before = cpu_time();
    for (int i = 0; i < 50; ++i) {
        calls_of(pool, 2);
        std::this_thread::sleep_for(4ms);
    }
    // About 0.1 ms of polling after each of 50 jobs; workers that never slept would use 200 ms.
    EXPECT_LT(cpu_time() - before, 60ms);
}

TEST(ThreadPool, PinsEachThreadAndRestoresTheCallersMask) {
    const std::vector<int> before = allowed_cpus();
    {
        ThreadPool pool(2, Pinning::on);
        std::array<std::vector<int>, 2> cpus;
        for (int round = 0; round < 1000 && (cpus[0].empty() || cpus[1].empty()); ++round)
            parallel_for(pool, 2, [&](int64_t, int64_t, int worker) {
                cpus[static_cast<size_t>(worker)] = allowed_cpus();
                std::this_thread::sleep_for(100us);
            });
        EXPECT_EQ(cpus[0].size(), 1U);
        EXPECT_EQ(cpus[1].size(), 1U);
        if (before.size() > 1) {
            EXPECT_NE(cpus[0], cpus[1]);
        }
    }
    EXPECT_EQ(allowed_cpus(), before);
}

/// Ways to run tasks that callers may have.
struct Executor {
    const char* name;
    RunTasks run;
};

void on_threads(size_t count, void (*task)(void*, size_t), void* argument) {
    std::vector<std::thread> threads;
    for (size_t i = 1; i < count; ++i) threads.emplace_back(task, argument, i);
    if (count > 0) task(argument, 0);
    for (std::thread& t : threads) t.join();
}

const std::vector<Executor>& executors() {
    static const std::vector<Executor> all = {
        {"Threads", on_threads},
        {"OneAfterAnother",
         [](size_t count, auto task, void* argument) {
             for (size_t i = 0; i < count; ++i) task(argument, i);
         }},
        {"TheLastFirst",
         [](size_t count, auto task, void* argument) {
             for (size_t i = count; i-- > 0;) task(argument, i);
         }},
        {"TwoThreads",
         [](size_t count, auto task, void* argument) {
             std::thread other([&] {
                 for (size_t i = 1; i < count; i += 2) task(argument, i);
             });
             for (size_t i = 0; i < count; i += 2) task(argument, i);
             other.join();
         }},
    };
    return all;
}

class LentPools : public testing::TestWithParam<Executor> {};
INSTANTIATE_TEST_SUITE_P(Executors, LentPools, testing::ValuesIn(executors()),
                         [](const auto& executor) { return executor.param.name; });

TEST_P(LentPools, RunEveryTaskOnceByWorkersOfTheirOwn) {
    ThreadPool pool(3, GetParam().run);
    EXPECT_EQ(pool.size(), 3);
    for (int call = 0; call < 20; ++call)
        pool.with_workers([&] {
            for (const int64_t tasks : {1, 2, 100}) {
                std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
                std::array<std::atomic<int>, 3> inside{};
                parallel_for(pool, tasks, [&](int64_t begin, int64_t end, int worker) {
                    EXPECT_EQ(inside[static_cast<size_t>(worker)].fetch_add(1), 0);
                    for (int64_t i = begin; i < end; ++i) ++runs[static_cast<size_t>(i)];
                    --inside[static_cast<size_t>(worker)];
                });
                EXPECT_TRUE(std::all_of(runs.begin(), runs.end(), [](const auto& n) { return n == 1; }));
            }
        });
}

TEST_P(LentPools, MayBeAskedForWorkersAgainDuringACall) {
    ThreadPool pool(2, GetParam().run);
    std::atomic<int> tasks = 0;
    const auto loop = [&] {
        parallel_for(pool, 10, [&](int64_t a, int64_t b, int) { tasks += static_cast<int>(b - a); });
    };
    pool.with_workers([&] {
        pool.with_workers(loop);
        loop();
    });
    EXPECT_EQ(tasks, 20);
}

TEST_P(LentPools, ThrowWhatTheCallThrowsAndWorkAfterwards) {
    ThreadPool pool(2, GetParam().run);
    EXPECT_THROW(pool.with_workers([] { throw RuntimeError("no"); }), RuntimeError);
    std::atomic<int> tasks = 0;
    pool.with_workers(
        [&] { parallel_for(pool, 7, [&](int64_t a, int64_t b, int) { tasks += static_cast<int>(b - a); }); });
    EXPECT_EQ(tasks, 7);
}

TEST(LentPool, LeavesTheModeOfItsThreadsAsItWas) {
    const FloatMode before = FloatMode::current();
    std::atomic<bool> changed = false;
    ThreadPool pool(4, [&](size_t count, auto task, void* argument) {
        struct Wrapped {
            void (*task)(void*, size_t);
            void* argument;
            std::atomic<bool>* changed;
            FloatMode before;
        } wrapped{task, argument, &changed, before};
        on_threads(
            count,
            [](void* given, size_t i) {
                Wrapped& c = *static_cast<Wrapped*>(given);
                c.task(c.argument, i);
                if (FloatMode::current() != c.before) *c.changed = true;
            },
            &wrapped);
    });
    pool.with_workers([&] {
        const ScopedFloatMode mode(FloatMode::of_kernels(false));
        parallel_for(pool, 1000, [&](int64_t, int64_t, int) {
            if (FloatMode::current() != FloatMode::of_kernels(false)) changed = true;
        });
    });
    EXPECT_FALSE(changed);
}

TEST(ThreadPool, RefusesInvalidSizes) {
    EXPECT_THROW(ThreadPool(-1), RuntimeError);
    EXPECT_THROW(ThreadPool(kMaxThreads + 1), RuntimeError);
}

TEST(ThreadPool, DefaultsToTheSizeOfTheMachine) { EXPECT_EQ(ThreadPool().size(), default_thread_count()); }

TEST(ThreadPool, RunsSeriallyInAForkedChild) {
    auto pool = std::make_unique<ThreadPool>(3);
    calls_of(*pool, 10);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const bool serial = calls_of(*pool, 10) == std::vector<Call>{{0, 10, 0}};
        pool.reset();
        _exit(serial ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_TRUE(shares_out(*pool));  // the parent's workers are still there
}

}  // namespace
}  // namespace tilewright
