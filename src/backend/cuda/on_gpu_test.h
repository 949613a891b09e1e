#pragma once
// The executor's tests on a GPU. TILEWRIGHT_TESTS_ON_GPU=1: what tests would execute in lockstep runs on this machine's
// first GPU, on the same numbers, held against the same results. No C++ compiler is needed for that, only NVRTC.

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "backend/cuda/gpu.h"
#include "backend/cuda/machine_code.h"
#include "backend/cuda/nvrtc.h"
#include "base/error.h"
#include "tile/walk.h"

namespace tilewright::cuda::test {

/// Whether it has matrix instructions of a warpgroup, which sm_90a alone has.
inline bool on_four_warps(const TileProgram& p) {
    const Walk tree = walk(p);
    return std::any_of(tree.computes.begin(), tree.computes.end(),
                       [](const auto& c) { return c.second->micro.matrix && c.second->micro.matrix->group(); });
}

/// The GPU of the process, and what compiles for it.
struct TestGpu {
    Gpu gpu;
    Nvrtc nvrtc;
    std::string lost;  ///< why nothing runs on it any more: after a kernel's fault a driver answers nothing else
    bool lacks(const TileProgram& p) const { return !gpu.target().has_wgmma() && on_four_warps(p); }
};

/// Where the code of tests' kernels is kept.
inline std::string cubin_folder() {
    const char* folder = std::getenv("TILEWRIGHT_TEST_CUBINS");
    return folder == nullptr ? TW_TEST_CUBINS : folder;
}

/// Null where the tests are for this CPU. Throws RuntimeError: a GPU was asked for and there is none, or no NVRTC.
inline TestGpu* test_gpu() {
    static const char* const wanted = std::getenv("TILEWRIGHT_TESTS_ON_GPU");
    static const std::unique_ptr<TestGpu> gpu(
        wanted == nullptr || std::string(wanted).empty() || std::string(wanted) == "0" ? nullptr : new TestGpu);
    return gpu.get();
}

/// What a test's kernels are generated for: an H200, unless this machine's GPU is less than that.
inline GpuTarget target_on(const Gpu& gpu) {
    const GpuTarget h = h200();
    const GpuTarget& here = gpu.target();
    const bool less = !here.has_wgmma() || h.block_shared_bytes > here.block_shared_bytes;
    return less ? here : h;
}

/// Kernels on it, with the executor's interface.
class KernelsOnGpu {
  public:
    /// Throws RuntimeError with NVRTC's words.
    KernelsOnGpu(TestGpu& on, std::vector<KernelText> kernels)
        : on_(on),
          kernels_(std::move(kernels)),
          code_(machine_code(
              kernels_, on.gpu.target().capability(), CodeCache(cubin_folder()), [&] { return on.nvrtc; },
              static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u)))) {}

    std::vector<Tensor> run(size_t k, const Program& stages, const std::vector<Tensor>& inputs,
                            const Bindings& bindings = {}) const {
        return guarded([&] {
            const KernelText text = alone(kernels_[k]);
            return on_.gpu.run(on_.gpu.load(code_[k], text), text, stages, inputs, bindings);
        });
    }
    /// On tensors as KernelText::tensors lists them, of which some are written.
    void run(size_t k, std::vector<Tensor>& tensors, const std::vector<int64_t>& names, int64_t blocks) const {
        guarded([&] {
            const KernelText text = alone(kernels_[k]);
            std::vector<std::shared_ptr<void>> memory;
            for (const Tensor& t : tensors) {
                memory.push_back(on_.gpu.allocate(t.bytes()));
                on_.gpu.to_device(memory.back().get(), t.data(), t.bytes());
            }
            std::vector<void*> pointers, arguments;
            for (const auto& m : memory) pointers.push_back(m.get());
            std::vector<long long> numbers(names.begin(), names.end());
            for (void*& p : pointers) arguments.push_back(static_cast<void*>(&p));
            for (long long& n : numbers) arguments.push_back(&n);
            on_.gpu.load(code_[k], text).launch(blocks, arguments);
            on_.gpu.synchronize();
            for (size_t i = 0; i < tensors.size(); ++i)
                if (text.tensors[i].written)
                    on_.gpu.to_host(tensors[i].mutable_data(), pointers[i], tensors[i].bytes());
            return 0;
        });
    }

  private:
    template <class F>
    std::invoke_result_t<F> guarded(const F& work) const {
        if (!on_.lost.empty()) throw RuntimeError("not run, since the GPU is lost: " + on_.lost);
        try {
            return work();
        } catch (const RuntimeError& e) {
            try {
                on_.gpu.synchronize();
            } catch (const RuntimeError&) {
                on_.lost = e.what();
            }
            throw;
        }
    }

    TestGpu& on_;
    std::vector<KernelText> kernels_;
    std::vector<std::string> code_;
};

}  // namespace tilewright::cuda::test
