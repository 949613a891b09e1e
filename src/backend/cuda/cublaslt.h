#pragma once
// cuBLASLt, NVIDIA's library of matrix products, loaded at run time: its algorithms are candidates beside
// generated kernels.

#include "backend/cuda/library_kernel.h"

namespace tilewright::cuda {

class CublasLt : public KernelLibrary {
  public:
    /// Throws RuntimeError that says where it was looked for. `names`: of the library; empty: the usual ones.
    explicit CublasLt(const Gpu& gpu, const std::vector<std::string>& names = {});
    CublasLt(const Gpu& gpu, const SharedLibrary& library);

    std::string name() const override { return "cuBLASLt"; }
    std::optional<Refusal> refusal(const LibraryKernel& operation) const override;
    std::variant<std::vector<Candidate>, Refusal> candidates(const LibraryKernel& operation,
                                                             const LibraryConditions& conditions,
                                                             size_t most) const override;

  private:
    struct Functions;
    struct Plan;
    std::shared_ptr<const Functions> call_;
};

}  // namespace tilewright::cuda
