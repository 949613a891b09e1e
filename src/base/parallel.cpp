#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace tilewright {

void parallel_for(size_t n, const std::function<void(size_t)>& f) {
    if (n <= 1) return n == 1 ? f(0) : void();
    static const size_t cpus = std::max(1u, std::thread::hardware_concurrency());  // it reads a file
    const size_t workers = std::min(n, cpus);
    std::atomic<size_t> next{0};
    std::mutex mutex;
    std::exception_ptr failed;
    const auto work = [&] {
        try {
            for (size_t k = next++; k < n; k = next++) f(k);
        } catch (...) {
            next = n;
            const std::lock_guard lock(mutex);
            if (!failed) failed = std::current_exception();
        }
    };
    std::vector<std::thread> threads;
    try {
        for (size_t k = 1; k < workers; ++k) threads.emplace_back(work);
    } catch (const std::system_error&) {  // no more threads available: the existing ones do the work
    }
    work();
    for (std::thread& t : threads) t.join();
    if (failed) std::rethrow_exception(failed);
}

}  // namespace tilewright
