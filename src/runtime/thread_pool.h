#pragma once
// A fixed thread pool with work stealing for the parallel loops of compiled kernels.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

#include "runtime/thread_count.h"

namespace tilewright {

/// Tasks [begin, end) of a loop, run by `worker` (0 is the thread that called parallel()). `worker` may only select
/// scratch memory: the result must not depend on it, nor on the ranges' boundaries. Must not throw (terminates).
using TaskFn = void (*)(void* context, int64_t begin, int64_t end, int worker);

struct TaskRange {
    int64_t begin = 0;
    int64_t end = 0;
    friend bool operator==(const TaskRange&, const TaskRange&) = default;
};

/// The tasks of `worker` of `workers`: contiguous, in the order of the workers, with sizes that differ by at most one,
/// the larger ones first. Deterministic. 10 tasks on 4 workers -> [0,3) [3,6) [6,8) [8,10).
constexpr TaskRange worker_range(int64_t tasks, int workers, int worker) {
    const int64_t share = tasks / workers;
    const int64_t larger = tasks % workers;
    const int64_t begin = worker * share + (worker < larger ? worker : larger);
    return {begin, begin + share + (worker < larger ? 1 : 0)};
}

/// Calls task(argument, i) once for every i < count, possibly at the same time, and returns when all are done.
using RunTasks = std::function<void(size_t count, void (*task)(void* argument, size_t i), void* argument)>;

enum class Pinning {
    off,  ///< the system places the threads
    on    ///< one thread a CPU, over distinct cores first; for measurements. Best effort.
};

/// A pool of `size()` workers: the calling thread and size() - 1 threads of its own.
///
/// Cost. Between jobs a worker spins for some 80 microseconds, so that kernels of one model follow each other without a
/// system call, then sleeps without using CPU. parallel() neither allocates nor locks. A pool with more workers than
/// usable CPUs does not spin.
///
/// Sharing. Any number of threads may call parallel() of one pool at a time. The first gets the workers; a caller that
/// finds them busy runs its own loop alone, as worker 0. Per-worker scratch memory therefore belongs to the caller (a
/// session), never to the pool: tasks of two callers may both be worker 0 at the same moment.
///
/// Nesting. parallel() called from a task of the same pool runs serially in that task, as the task's worker.
///
/// Fork. The threads do not exist in a forked child: there the pool runs every loop serially, and may be destroyed.
///
/// The tasks of a job run in the floating-point mode (rounding, flush to zero) of the thread that called parallel().
class ThreadPool {
  public:
    /// `threads` 0: default_thread_count(). With Pinning::on the constructing thread is pinned as well, as worker 0,
    /// until the pool is destroyed. Throws RuntimeError if a thread cannot be started or the number is out of range.
    explicit ThreadPool(int threads = 0, Pinning pinning = Pinning::off);
    /// A pool without threads of its own: its workers are tasks of `run`, for as long as with_workers() lasts.
    ThreadPool(int workers, RunTasks run);
    ~ThreadPool();  ///< no thread may be inside parallel()
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const;

    /// Calls body(), whose calls of parallel() have the workers. Of a pool without threads of its own, they are lent by
    /// one call of RunTasks: the first of its size() tasks that begins calls body(), the others work for it until it
    /// returns. Tasks that begin later, as all others do where they run one after another, do nothing, so body() never
    /// waits for them. One call at a time for such a pool, within which body() may call it again. Throws what body()
    /// throws.
    void with_workers(const std::function<void()>& body);

    /// Runs tasks 0 .. tasks-1 and returns when all are done. Worker w's share is worker_range(tasks, min(tasks,
    /// size()), w), cut into a few chunks of one call each. A worker that has finished its share steals chunks of the
    /// others, so that a descheduled worker (a busy machine, a smaller quota than cores) causes no long delay.
    /// Everything written before the call is visible to the tasks, and their writes are visible to the caller.
    void parallel(int64_t tasks, TaskFn fn, void* context) noexcept;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

/// parallel() for a callable: body(begin, end, worker).
template <class Body>
void parallel_for(ThreadPool& pool, int64_t tasks, Body&& body) noexcept {
    using Callable = std::remove_reference_t<Body>;
    pool.parallel(
        tasks,
        [](void* context, int64_t begin, int64_t end, int worker) {
            (*static_cast<Callable*>(context))(begin, end, worker);
        },
        const_cast<void*>(static_cast<const void*>(std::addressof(body))));
}

}  // namespace tilewright
