#pragma once
// Generated kernels executed on a machine without a GPU.
//
// The very text that NVRTC would compile is compiled as C++, behind device/emulated.cuh in place of device/cuda.cuh,
// and run block by block, the threads of a block in lockstep from barrier to barrier. That finds, besides wrong
// numbers: two threads at one byte without a barrier between them, one of them writing; two blocks at one element;
// reads of shared memory that was not written; indices outside of a tensor or buffer; vectors that are not aligned;
// barriers and shuffles that not every thread comes to; elements of a result that are never written.
//
// The compiler is the system's, as a process of its own. (Clang's libraries in process were weighed: they weigh 100 MB,
// parse no faster, and would be there for tests alone. What costs is the device header, half a second a translation
// unit: many kernels share one.)

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/host_library.h"
#include "backend/cuda/kernel.h"

namespace tilewright::cuda {

/// Runs a kernel on tensors, inputs then outputs, with these values of its names.
using KernelRun = std::function<void(std::vector<Tensor>& tensors, const std::vector<int64_t>& names, int64_t blocks)>;
/// The outputs of a kernel of these stages. `bindings`: symbols and scalars that the inputs' shapes do not bind.
std::vector<Tensor> run_stages(const KernelText& kernel, const Program& stages, const std::vector<Tensor>& inputs,
                               Bindings bindings, const KernelRun& run);

class Lockstep {
  public:
    /// Compiles the kernels, whose names must differ. Throws RuntimeError with the compiler's first error.
    explicit Lockstep(std::vector<KernelText> kernels, const LockstepOptions& options = {});

    const KernelText& kernel(size_t k) const { return kernels_[k]; }
    /// Runs kernel k on tensors, inputs and outputs as in KernelText::tensors; what stands in the outputs before counts
    /// for nothing. Throws RuntimeError that says what was wrong, and with which block and thread.
    void run(size_t k, std::vector<Tensor>& tensors, const std::vector<int64_t>& names, int64_t blocks) const;
    std::vector<Tensor> run(size_t k, const Program& stages, const std::vector<Tensor>& inputs,
                            const Bindings& bindings = {}) const;  ///< run_stages

  private:
    std::vector<KernelText> kernels_;
    std::optional<HostLibrary> library_;
    std::vector<void*> entries_;
};

}  // namespace tilewright::cuda
