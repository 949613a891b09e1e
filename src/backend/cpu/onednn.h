#pragma once
// oneDNN, loaded at run time: its products and convolutions are candidates beside our kernels.
//
// Constant weights are brought into the form that the primitive asks for once; everything else stays where the plan has
// it. The library's threads are OpenMP's: as many as the session has, for the length of the call. Its scratch memory is
// the session's, so that sessions run at the same time (what it allocates in a call besides is its own business). Its
// ReLU loses a NaN; ELU with alpha 0 does not, and is what stands for it.

#include "backend/cpu/provider.h"
#include "base/shared_library.h"

namespace tilewright::cpu {

/// A copy is the same library. From any thread.
class OneDnn : public KernelProvider {
  public:
    /// Throws RuntimeError that says where it was looked for, what it lacks, or that its version is none that is known.
    /// `names`: of the library; empty: the usual ones.
    explicit OneDnn(const std::vector<std::string>& names = {});
    explicit OneDnn(const SharedLibrary& library);

    std::string name() const override;
    std::optional<std::string> refusal(const Program& stages, const std::vector<bool>& weights) const override;
    std::shared_ptr<const LibraryCall> provide(const Program& stages, const std::vector<bool>& weights,
                                               int threads) const override;

    struct Functions;

  private:
    std::shared_ptr<const Functions> call_;
};

}  // namespace tilewright::cpu
