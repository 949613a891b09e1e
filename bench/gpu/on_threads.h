#pragma once
// Independent work on several CPUs.

#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace tilewright {

/// Calls work(0) to work(count - 1) on several threads; rethrows the exception of one of them.
template <class F>
void on_threads(size_t count, int threads, const F& work) {
    std::atomic<size_t> next{0};
    std::vector<std::thread> all;
    std::mutex mutex;
    std::exception_ptr wrong;
    for (int t = 0; t < threads; ++t)
        all.emplace_back([&] {
            for (size_t k = next++; k < count; k = next++) try {
                    work(k);
                } catch (...) {
                    const std::lock_guard lock(mutex);
                    wrong = std::current_exception();
                }
        });
    for (std::thread& t : all) t.join();
    if (wrong) std::rethrow_exception(wrong);
}

}  // namespace tilewright
