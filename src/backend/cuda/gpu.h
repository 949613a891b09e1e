#pragma once
// A GPU of this machine: memory, code, launches, through the CUDA driver, which is loaded at run time.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/kernel.h"

namespace tilewright::cuda {

class Gpu {
  public:
    /// Device `index`. Throws RuntimeError: there is no driver, no such device, or the device is older than sm_80; each
    /// says what to do. `library`: the driver's; empty: the usual one.
    explicit Gpu(int index = 0, const std::string& library = "");

    /// As the driver describes it; rates are estimated from its clocks.
    const GpuTarget& target() const;

    /// Memory of the device, freed with the last copy of the pointer. Throws RuntimeError that says how much was asked
    /// for where there is not enough.
    std::shared_ptr<void> allocate(size_t bytes) const;
    void to_device(void* device, const void* host, size_t bytes) const;
    void to_host(void* host, const void* device, size_t bytes) const;

    /// A function of a cubin (Nvrtc::compile), with leave to use that much shared memory.
    class Kernel {
      public:
        /// `arguments`: the address of each; returns before the kernel has run.
        void launch(int64_t blocks, const std::vector<void*>& arguments) const;

      private:
        friend class Gpu;
        struct State;
        std::shared_ptr<const State> state_;
    };
    Kernel load(const std::string& cubin, const KernelText& kernel) const;
    /// Waits for everything that was launched. Throws RuntimeError where a kernel failed.
    void synchronize() const;

    /// The outputs of a kernel of these stages; copies inputs there and outputs back.
    std::vector<Tensor> run(const Kernel& kernel, const KernelText& text, const Program& stages,
                            const std::vector<Tensor>& inputs, Bindings bindings = {}) const;

  private:
    struct Driver;
    std::shared_ptr<const Driver> driver_;
};

}  // namespace tilewright::cuda
