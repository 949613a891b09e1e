#pragma once
// A GPU of this machine: memory, code, launches, through the CUDA driver, which is loaded at run time.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/kernel.h"
#include "base/shared_library.h"

namespace tilewright::cuda {

struct Driver;

/// Of every tensor and workspace of a kernel, in bytes: what allocations of the driver have. TMA and vectors of 16
/// bytes need less; libraries choose their kernels for this one.
inline constexpr int64_t kTensorAlignment = 256;

/// A copy is the same device. From any thread.
class Gpu {
  public:
    /// Device `index`. Throws RuntimeError: there is no driver, no such device, or the device is older than sm_80; each
    /// says what to do. `library`: the driver's; empty: the usual one.
    explicit Gpu(int index = 0, const std::string& library = "");
    Gpu(int index, SharedLibrary driver);

    /// As the driver describes it; rates are estimated from its clocks.
    const GpuTarget& target() const;
    /// The calling thread works with this device, for libraries that ask for that.
    void enter() const;
    /// Free bytes of the device's memory; memory of other processes is not free.
    uint64_t free_bytes() const;

    /// Memory of the device, freed with the last copy of the pointer. Throws RuntimeError that says what needs how much
    /// and what there is where that is not enough.
    std::shared_ptr<void> allocate(size_t bytes, const std::string& what = "a tensor") const;
    /// The same, of zeros.
    std::shared_ptr<void> allocate_zeros(size_t bytes, const std::string& what = "counters of kernels") const;
    /// Memory of the host that streams copy from and to while the caller goes on.
    std::shared_ptr<void> allocate_pinned(size_t bytes) const;
    void to_device(void* device, const void* host, size_t bytes) const;  ///< every stream finds it there
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

    /// What a stream has been asked for while it was captured, as one thing to launch.
    class Graph {
      private:
        friend class Gpu;
        std::shared_ptr<void> executable_;
    };

    /// Work in order, beside that of other streams. One thread at a time.
    class Stream {
      public:
        /// Both return before it has happened; the host's memory is pinned (allocate_pinned).
        void to_device(void* device, const void* pinned, size_t bytes) const;
        void to_host(void* pinned, const void* device, size_t bytes) const;
        void launch(const Kernel& kernel, int64_t blocks, const std::vector<void*>& arguments) const;
        void launch(const Graph& graph) const;
        /// What `work` enqueues on this stream; nothing of it happens now. Addresses are those of now, whenever the
        /// graph is launched; values of arguments as well.
        Graph capture(const std::function<void()>& work) const;
        /// Waits for all of it. Throws RuntimeError where a kernel failed: the device is then of no use to this process
        /// any more.
        void synchronize() const;
        /// The driver's stream, for libraries that work on it.
        void* handle() const { return stream_.get(); }

      private:
        friend class Gpu;
        std::shared_ptr<const Driver> driver_;
        std::shared_ptr<void> stream_;
    };
    Stream stream() const;

    /// The outputs of a kernel of these stages; copies inputs there and outputs back.
    std::vector<Tensor> run(const Kernel& kernel, const KernelText& text, const Program& stages,
                            const std::vector<Tensor>& inputs, Bindings bindings = {}) const;

  private:
    std::shared_ptr<const Driver> driver_;
};

}  // namespace tilewright::cuda
