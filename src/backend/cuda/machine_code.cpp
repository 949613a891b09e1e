#include "backend/cuda/machine_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"

namespace tilewright::cuda {

KernelText alone(const KernelText& kernel) {
    const std::string head = "TW_KERNEL(" + kernel.name + ",";
    const size_t at = kernel.text.find(head);
    TW_CHECK(at != std::string::npos, "the text of '{}' begins with TW_KERNEL", kernel.name);
    KernelText out = kernel;
    out.name = "kernel";
    out.text = "TW_KERNEL(kernel," + kernel.text.substr(at + head.size());
    return out;
}

std::vector<std::string> machine_code(const std::vector<KernelText>& kernels, int capability, const CodeCache& cache,
                                      const std::function<Nvrtc()>& compiler, int threads,
                                      const std::function<void(const std::string&)>& progress) {
    std::vector<std::string> code(kernels.size()), made_of(kernels.size());
    std::vector<size_t> missing;
    for (size_t k = 0; k < kernels.size(); ++k) {
        made_of[k] = fmt::format("sm_{}\n{}\n{}", capability, device_header(), alone(kernels[k]).text);
        if (auto known = cache.find(made_of[k]))
            code[k] = std::move(*known);
        else
            missing.push_back(k);
    }
    if (missing.empty()) return code;
    const Nvrtc nvrtc = compiler();
    std::atomic<size_t> next{0};
    std::mutex mutex;
    std::exception_ptr wrong;
    const auto work = [&] {
        for (size_t i = next++; i < missing.size(); i = next++) try {
                const size_t k = missing[i];
                if (progress) {
                    const std::lock_guard lock(mutex);
                    progress(fmt::format("compiling kernel {} of {}", i + 1, missing.size()));
                }
                code[k] = nvrtc.compile(std::vector<KernelText>{alone(kernels[k])}, capability);
                cache.keep(made_of[k], code[k]);
            } catch (...) {
                const std::lock_guard lock(mutex);
                if (!wrong) wrong = std::current_exception();
                next = missing.size();
            }
    };
    std::vector<std::thread> others;
    for (size_t t = 1; t < std::min<size_t>(static_cast<size_t>(std::max(1, threads)), missing.size()); ++t)
        others.emplace_back(work);
    work();
    for (std::thread& t : others) t.join();
    if (wrong) std::rethrow_exception(wrong);
    return code;
}

}  // namespace tilewright::cuda
