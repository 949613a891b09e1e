#include "backend/cpu/guarded.h"

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/Support/ErrorHandling.h>
#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace tilewright::cpu {

namespace {

/// Shared with the threads, because a parked thread outlives the call.
struct Guarded {
    std::mutex mutex;
    std::condition_variable ended;
    size_t running = 0;
    std::exception_ptr failure;

    void end(std::exception_ptr why) {
        const std::lock_guard lock(mutex);
        if (why && !failure) failure = std::move(why);
        --running;
        ended.notify_all();
    }
};

struct ThisThread {
    Guarded* guarded = nullptr;
    std::string work;
};
thread_local ThisThread this_thread;

[[noreturn]] void park() {
    for (;;) ::pause();
}

void on_fatal_error(void*, const char* reason, bool) {
    if (this_thread.guarded == nullptr) {
        std::fprintf(stderr, "LLVM ERROR: %s\n", reason);
        return;  // LLVM ends the process
    }
    this_thread.guarded->end(std::make_exception_ptr(InternalError(
        fmt::format("LLVM cannot compile kernel '{}': {}", this_thread.work, llvm::StringRef(reason).rtrim().str()))));
    park();
}

void on_bad_alloc(void*, const char* reason, bool) {
    if (this_thread.guarded == nullptr) {
        std::fprintf(stderr, "LLVM ERROR: %s\n", reason);
        return;
    }
    this_thread.guarded->end(std::make_exception_ptr(
        RuntimeError(fmt::format("not enough memory to compile kernel '{}'", this_thread.work))));
    park();
}

/// For LLVM and the generator, whose recursion depth depends on the kernel: independent of the caller's stack.
constexpr size_t kStackBytes = size_t{16} << 20;

struct Start {
    std::shared_ptr<Guarded> guarded;
    const std::function<void()>* work;
};

void* run_thread(void* given) {
    const std::unique_ptr<Start> start(static_cast<Start*>(given));
    this_thread.guarded = start->guarded.get();
    std::exception_ptr failure;
    try {
        (*start->work)();
    } catch (...) {
        failure = std::current_exception();
    }
    start->guarded->end(std::move(failure));
    return nullptr;
}

/// Returns false if the system cannot create another thread.
bool start_thread(Start start) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    auto given = std::make_unique<Start>(std::move(start));
    pthread_t thread{};
    const bool started = pthread_create(&thread, &attributes, run_thread, given.get()) == 0;
    if (started) static_cast<void>(given.release());  // run_thread owns it
    pthread_attr_destroy(&attributes);
    return started;
}

void install_handlers() {
    static std::once_flag once;
    std::call_once(once, [] {
        llvm::install_fatal_error_handler(on_fatal_error);
        llvm::install_bad_alloc_error_handler(on_bad_alloc);
    });
}

}  // namespace

void run_guarded(size_t threads, const std::function<void()>& work) {
    install_handlers();
    const auto guarded = std::make_shared<Guarded>();
    std::unique_lock lock(guarded->mutex);
    for (size_t i = 0; i < threads; ++i) {
        if (start_thread({guarded, &work}))
            ++guarded->running;
        else if (i == 0)
            throw RuntimeError("cannot start a thread to compile on");
        else
            break;  // the threads that started do all the work
    }
    guarded->ended.wait(lock, [&] { return guarded->running == 0; });
    // Taken: the threads, which may still hold `guarded`, must not be the last to release it.
    if (guarded->failure) std::rethrow_exception(std::exchange(guarded->failure, nullptr));
}

void set_guarded_work(const std::string& name) { this_thread.work = name; }

}  // namespace tilewright::cpu
