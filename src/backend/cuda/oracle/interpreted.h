#pragma once
// Generated kernels behind device/cuda.cuh itself, executed on a machine without a GPU: the text that NVRTC compiles is
// compiled as C++, and its asm statements are calls of an interpreter of PTX (ptx_machine.h).

#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/lockstep.h"
#include "backend/cuda/oracle/ptx_machine.h"

namespace tilewright::cuda::oracle {

class Interpreted {
  public:
    /// `device`: in place of cuda.cuh, where it is not empty. Throws RuntimeError with the compiler's first error, or
    /// for an instruction that the interpreter does not know.
    explicit Interpreted(std::vector<KernelText> kernels, const LockstepOptions& options,
                         const std::string& device = "");

    /// As Lockstep's functions.
    void run(size_t k, std::vector<Tensor>& tensors, const std::vector<int64_t>& names, int64_t blocks) const;
    std::vector<Tensor> run(size_t k, const Program& stages, const std::vector<Tensor>& inputs,
                            const Bindings& bindings = {}) const;

    /// The templates of the text's asm statements, and which of them have been executed.
    const std::vector<std::string>& statements() const { return statements_; }
    const std::set<size_t>& executed() const { return machine_->executed(); }

  private:
    std::vector<KernelText> kernels_;
    std::vector<std::string> statements_;
    std::optional<HostLibrary> library_;
    std::unique_ptr<PtxMachine> machine_;
};

}  // namespace tilewright::cuda::oracle
