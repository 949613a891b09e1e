#include "runtime/thread_pool.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/blocked_signals.h"
#include "base/error.h"
#include "runtime/float_mode.h"

namespace tilewright {

namespace {

using Clock = std::chrono::steady_clock;

/// How long an idle thread spins before it sleeps: longer than the gap between two kernels of a model and than the
/// wake-up of a sleeper; short enough not to appear as load.
constexpr std::chrono::nanoseconds kSpin{80'000};

/// Variables of different writers are on different cache lines, including the adjacent line that the prefetcher loads.
constexpr size_t kLine = 128;

void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
}

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "futex words are plain 32-bit integers");

/// Sleeps while `word` is `expected`, until woken by one of the bits of `mask`; may wake up spuriously.
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, uint32_t mask) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_BITSET_PRIVATE, expected, nullptr, nullptr, mask);
}

void futex_wake(std::atomic<uint32_t>& word, uint32_t mask) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, nullptr, nullptr, mask);
}

/// The number of forks this process descends from: a pool compares it to detect that its threads do not exist here.
std::atomic<uint32_t> forks{0};

uint32_t watch_forks() {
    static const int registered =
        pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
    static_cast<void>(registered);
    return forks.load(std::memory_order_relaxed);
}

/// The pool whose task this thread runs, and its worker number there.
struct Position {
    const void* pool = nullptr;
    int worker = 0;
};
thread_local Position position;

class Enter {
  public:
    Enter(const void* pool, int worker) : before_(position) { position = {pool, worker}; }
    ~Enter() { position = before_; }
    Enter(const Enter&) = delete;
    Enter& operator=(const Enter&) = delete;

  private:
    Position before_;
};

/// Restricts a thread (0: this one) to these CPUs. Failure has no effect: pinning is a hint.
void set_affinity(pid_t thread, const std::vector<int>& cpus) {
    const auto limit = static_cast<size_t>(cpus.back()) + 1;  // ascending, or a single one
    cpu_set_t* mask = CPU_ALLOC(limit);
    if (mask == nullptr) return;
    CPU_ZERO_S(CPU_ALLOC_SIZE(limit), mask);
    for (const int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), CPU_ALLOC_SIZE(limit), mask);
    sched_setaffinity(thread, CPU_ALLOC_SIZE(limit), mask);
    CPU_FREE(mask);
}

}  // namespace

/// One job at a time is published in job_. Its `ticket` is written last and determines which workers take part.
/// Each share is cut into a few chunks, and a share's cursor points to the next one. A worker that has finished its own
/// share steals chunks of the others: a descheduled worker delays at most the chunk it is in, and one that comes too
/// late finds nothing left. A cursor carries the ticket, so that a chunk is only taken from the job that the worker was
/// started for; a job stays published as long as one of its taken chunks is unfinished.
///
/// Sleeping. A worker that stops spinning sets its bit in sleepers_, reads the ticket once more, and sleeps on wakes_.
/// The caller stores the ticket, then reads sleepers_. These four accesses are sequentially consistent, so either the
/// worker sees the ticket or the caller sees the bit. The caller clears the bits before it advances wakes_; a worker
/// reads wakes_ before it sets its bit; so a worker that is not woken has its bit set.
class ThreadPool::Impl {
  public:
    Impl(int size, Pinning pinning) : size_(size), born_(watch_forks()), cursors_(static_cast<size_t>(size)) {
        if (usable_cpu_count() >= size) spin_ = kSpin;
        if (pinning == Pinning::on) {
            unpinned_ = allowed_cpus();
            pin_order_ = spread_over_cores(unpinned_, read_text_file);
        }
    }

    Impl(int size, RunTasks run) : Impl(size, Pinning::off) { lend_ = std::move(run); }

    ~Impl() {
        if (!unpinned_.empty() && pinned_thread_ != 0) set_affinity(pinned_thread_, unpinned_);
        stop();
        for (std::thread& t : threads_) t.join();
    }

    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    void start() {
        const BlockedSignals blocked;  // new threads inherit it
        threads_.reserve(static_cast<size_t>(size_ - 1));
        for (int worker = 1; worker < size_; ++worker) {
            try {
                threads_.emplace_back([this, worker] { work(worker); });
            } catch (const std::system_error& e) {
                throw RuntimeError(fmt::format("cannot start thread {} of {}: {}", worker + 1, size_, e.what()));
            }
            pthread_setname_np(threads_.back().native_handle(), fmt::format("tilewright-{}", worker).c_str());
        }
        if (!pin_order_.empty()) {
            pinned_thread_ = static_cast<pid_t>(syscall(SYS_gettid));
            set_affinity(pinned_thread_, {pin_order_[0]});
        }
    }

    int size() const { return size_; }
    bool forked() const { return forks.load(std::memory_order_relaxed) != born_; }

    void parallel(int64_t tasks, TaskFn fn, void* context) {
        if (tasks <= 0) return;
        if (position.pool == this) return fn(context, 0, tasks, position.worker);
        const Enter inside(this, 0);
        if (tasks == 1 || size_ == 1 || forked() || !try_claim()) return fn(context, 0, tasks, 0);
        const int active = tasks < size_ ? static_cast<int>(tasks) : size_;
        const uint64_t ticket = publish(tasks, fn, context, active);
        FloatMode mode = job_.mode;
        run_pieces(ticket, 0, active, mode);
        wait_for_pieces();
        busy_.store(false, std::memory_order_release);
    }

    void with_workers(const std::function<void()>& body) {
        if (!lend_ || in_call_) return body();
        struct Call {
            Impl* pool;
            const std::function<void()>* body;
            std::atomic<int> begun{0};
            std::exception_ptr thrown{};
        };
        Call call{this, &body};
        job_.ticket.store(next_ticket(0));  // the last one is that of the end of the call before
        lend_(
            static_cast<size_t>(size_),
            [](void* argument, size_t) {
                Call& c = *static_cast<Call*>(argument);
                const int worker = c.begun.fetch_add(1);
                if (worker >= c.pool->size_) return;
                if (worker > 0) return c.pool->work_for_a_call(worker);
                c.pool->in_call_ = true;
                try {
                    (*c.body)();
                } catch (...) {
                    c.thrown = std::current_exception();
                }
                c.pool->in_call_ = false;
                c.pool->stop();
            },
            &call);
        if (call.thrown) std::rethrow_exception(call.thrown);
    }

  private:
    static constexpr uint64_t kActiveBits = 16;
    static constexpr int kPieces = 4;
    static constexpr uint64_t kPieceBits = 3;
    static_assert(kPieces < 1 << kPieceBits);
    static constexpr int kStop = (1 << kActiveBits) - 1;
    static_assert(kMaxThreads < kStop);

    bool try_claim() {
        return !busy_.load(std::memory_order_relaxed) && !busy_.exchange(true, std::memory_order_acquire);
    }

    /// The high bits count up; the low bits are the number of participating workers.
    uint64_t next_ticket(int active) const {
        return (((job_.ticket.load(std::memory_order_relaxed) >> kActiveBits) + 1) << kActiveBits) |
               static_cast<uint64_t>(active);
    }

    /// Workers 1 to 32 have a bit each, later ones share them: too many may wake, never too few.
    static uint32_t sleeper_bit(int worker) { return uint32_t{1} << ((worker - 1) % 32); }
    static uint32_t sleeper_bits(int active) { return active > 32 ? ~uint32_t{0} : (uint32_t{1} << (active - 1)) - 1; }

    static int pieces_of(const TaskRange& share) {
        return static_cast<int>(std::min<int64_t>(share.end - share.begin, kPieces));
    }

    /// A share's cursor: its ticket, and the number of chunks that are not taken yet.
    static uint64_t cursor_at(uint64_t ticket, int left) {
        return (ticket << kPieceBits) | static_cast<uint64_t>(left);
    }
    static bool left_of(uint64_t cursor, uint64_t ticket) {
        return cursor >> kPieceBits == (ticket << kPieceBits) >> kPieceBits &&
               (cursor & ((uint64_t{1} << kPieceBits) - 1)) != 0;
    }

    uint64_t publish(int64_t tasks, TaskFn fn, void* context, int active) {
        const uint64_t ticket = next_ticket(active);
        job_.fn = fn;
        job_.context = context;
        job_.tasks = tasks;
        job_.mode = FloatMode::current();
        const auto shares = [&](auto&& each) {
            for (int w = 0; w < active; ++w) each(static_cast<size_t>(w), pieces_of(worker_range(tasks, active, w)));
        };
        uint32_t all = 0;
        shares([&](size_t, int pieces) { all += static_cast<uint32_t>(pieces); });
        pending_.store(all, std::memory_order_relaxed);
        shares(
            [&](size_t w, int pieces) { cursors_[w].at.store(cursor_at(ticket, pieces), std::memory_order_release); });
        job_.ticket.store(ticket);
        wake_sleepers(sleeper_bits(active));
        return ticket;
    }

    void wake_sleepers(uint32_t bits) {
        bits &= sleepers_.load();
        if (bits == 0) return;
        sleepers_.fetch_and(~bits);
        wakes_.fetch_add(1);
        futex_wake(wakes_, bits);
    }

    /// Runs chunks of the worker's own share, then steals chunks of the others. `mode`: this thread's, updated.
    void run_pieces(uint64_t ticket, int worker, int active, FloatMode& mode) {
        for (int k = 0; k < active; ++k) {
            const int owner = (worker + k) % active;
            std::atomic<uint64_t>& cursor = cursors_[static_cast<size_t>(owner)].at;
            uint64_t at = cursor.load(std::memory_order_acquire);
            while (left_of(at, ticket)) {
                if (!cursor.compare_exchange_weak(at, at - 1, std::memory_order_acq_rel, std::memory_order_acquire))
                    continue;
                // The chunk is taken, so its job stays published.
                if (mode != job_.mode) (mode = job_.mode).set();
                const TaskRange share = worker_range(job_.tasks, active, owner);
                const int pieces = pieces_of(share);
                const int piece = pieces - static_cast<int>(at & ((uint64_t{1} << kPieceBits) - 1));
                const TaskRange part = worker_range(share.end - share.begin, pieces, piece);
                job_.fn(job_.context, share.begin + part.begin, share.begin + part.end, worker);
                if (pending_.fetch_sub(1) == 1 && worker != 0 && caller_sleeps_.load())
                    futex_wake(pending_, FUTEX_BITSET_MATCH_ANY);
                at = cursor.load(std::memory_order_acquire);
            }
        }
    }

    void wait_for_pieces() {
        if (spin([this] { return pending_.load(std::memory_order_acquire) == 0; }, Clock::now() + spin_)) return;
        caller_sleeps_.store(true);
        for (uint32_t left = pending_.load(); left != 0; left = pending_.load())
            futex_wait(pending_, left, FUTEX_BITSET_MATCH_ANY);
        caller_sleeps_.store(false, std::memory_order_relaxed);
    }

    void work(int worker) noexcept {
        if (!pin_order_.empty()) set_affinity(0, {pin_order_[static_cast<size_t>(worker) % pin_order_.size()]});
        position = {this, worker};
        work_until_stopped(worker);
    }

    void work_until_stopped(int worker) noexcept {
        uint64_t seen = 0;
        FloatMode mode = FloatMode::current();
        Clock::time_point deadline = Clock::now() + spin_;
        for (;;) {
            seen = wait_for_ticket(seen, worker, deadline);
            const int active = static_cast<int>(seen & ((uint64_t{1} << kActiveBits) - 1));
            if (active == kStop) return;
            if (worker >= active) continue;  // not needed: keep the deadline for sleeping
            run_pieces(seen, worker, active, mode);
            deadline = Clock::now() + spin_;
        }
    }

    /// Waits for the first ticket other than `seen`.
    uint64_t wait_for_ticket(uint64_t seen, int worker, Clock::time_point deadline) {
        if (spin([&] { return job_.ticket.load(std::memory_order_acquire) != seen; }, deadline))
            return job_.ticket.load(std::memory_order_acquire);
        for (;;) {
            const uint32_t wakes = wakes_.load();
            sleepers_.fetch_or(sleeper_bit(worker));
            const uint64_t ticket = job_.ticket.load();
            if (ticket != seen) return ticket;
            futex_wait(wakes_, wakes, sleeper_bit(worker));
        }
    }

    /// A thread that is not the pool's, until the call of with_workers() ends.
    void work_for_a_call(int worker) noexcept {
        const Enter inside(this, worker);
        const FloatMode before = FloatMode::current();
        work_until_stopped(worker);
        if (FloatMode::current() != before) before.set();
    }

    void stop() {
        job_.ticket.store(next_ticket(kStop));
        wake_sleepers(~uint32_t{0});
    }

    /// Polls `done` until it returns true (true) or the deadline has passed (false).
    template <class Done>
    static bool spin(Done done, Clock::time_point deadline) {
        constexpr int kPollsPerClock = 32;
        do {
            for (int i = 0; i < kPollsPerClock; ++i) {
                if (done()) return true;
                pause_cpu();
            }
        } while (Clock::now() < deadline);
        return done();
    }

    const int size_;
    const uint32_t born_;
    RunTasks lend_;         // empty: the pool has threads
    bool in_call_ = false;  // of with_workers; used by the thread that runs its body
    std::chrono::nanoseconds spin_{0};
    std::vector<int> pin_order_;  // worker w runs on pin_order_[w % size]; empty: anywhere
    std::vector<int> unpinned_;   // CPU mask of the pinned caller before pinning
    pid_t pinned_thread_ = 0;

    struct alignas(kLine) Job {
        std::atomic<uint64_t> ticket{0};
        TaskFn fn = nullptr;
        void* context = nullptr;
        int64_t tasks = 0;
        FloatMode mode;
    };
    Job job_;  // written by the caller that holds the pool
    struct alignas(kLine) Cursor {
        std::atomic<uint64_t> at{0};
    };
    std::vector<Cursor> cursors_;                      // by worker
    alignas(kLine) std::atomic<uint32_t> pending_{0};  // chunks of the job that are not done
    std::atomic<bool> caller_sleeps_{false};
    alignas(kLine) std::atomic<uint32_t> sleepers_{0};
    std::atomic<uint32_t> wakes_{0};
    alignas(kLine) std::atomic<bool> busy_{false};  // a caller uses the workers
    alignas(kLine) std::vector<std::thread> threads_;
};

ThreadPool::ThreadPool(int threads, Pinning pinning)
    : impl_(std::make_unique<Impl>(default_thread_count(threads), pinning)) {
    impl_->start();
}

ThreadPool::ThreadPool(int workers, RunTasks run)
    : impl_(std::make_unique<Impl>(default_thread_count(workers), std::move(run))) {}

ThreadPool::~ThreadPool() {
    // In a forked child there are no threads to join; the state of the parent's threads is leaked.
    [[maybe_unused]] const Impl* left = impl_->forked() ? impl_.release() : nullptr;
}

int ThreadPool::size() const { return impl_->size(); }

void ThreadPool::with_workers(const std::function<void()>& body) { impl_->with_workers(body); }

void ThreadPool::parallel(int64_t tasks, TaskFn fn, void* context) noexcept { impl_->parallel(tasks, fn, context); }

}  // namespace tilewright
