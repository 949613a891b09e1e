#pragma once
// oneDNN, loaded at run time: its matrix products and convolutions are candidates beside generated kernels.
//
// Constant weights are reordered once into the primitive's layout; all other tensors keep the plan's layout. A call
// uses as many OpenMP threads as the session has. Scratch memory belongs to the session, so that sessions can run
// concurrently. oneDNN's ReLU does not propagate NaN; ELU with alpha 0 does and replaces it.

#include "backend/cpu/provider.h"
#include "base/shared_library.h"

namespace tilewright::cpu {

/// Returns why oneDNN has no kernel for the operation. It has kernels for f32, and for convolutions of two spatial
/// dimensions with constant weights.
std::optional<Refusal> onednn_refusal(const LibraryKernel& operation);

/// A copy refers to the same library. Thread-safe.
class OneDnn : public LibraryProvider {
  public:
    /// Throws RuntimeError with the searched names, the missing function, or the unsupported version. `names`: of the
    /// library; empty: the usual ones.
    explicit OneDnn(const std::vector<std::string>& names = {});
    explicit OneDnn(const SharedLibrary& library);

    std::string name() const override;
    using LibraryProvider::candidates;
    using LibraryProvider::refusal;
    std::optional<Refusal> refusal(const LibraryKernel& operation) const override { return onednn_refusal(operation); }
    /// `most` 1: only the library's own choice.
    std::variant<std::vector<Candidate>, Refusal> candidates(const LibraryKernel& operation,
                                                             const LibraryConditions& conditions,
                                                             size_t most) const override;

    struct Functions;

  private:
    std::shared_ptr<const Functions> call_;
};

}  // namespace tilewright::cpu
