#pragma once
// oneDNN, loaded at run time: its implementations of products and convolutions are candidates beside generated kernels.
//
// Constant weights are reordered once into the primitive's layout; all other tensors keep the plan's layout. The
// library's threads are OpenMP's: as many as the session has, for the length of the call. Its scratch memory is the
// session's, so that sessions run at the same time. Its ReLU loses a NaN; ELU with alpha 0 keeps it and takes its
// place.

#include "backend/cpu/provider.h"
#include "base/shared_library.h"

namespace tilewright::cpu {

/// Why oneDNN has no kernel for the operation: it takes f32, and convolutions of two spatial dimensions with constant
/// weights.
std::optional<Refusal> onednn_refusal(const LibraryKernel& operation);

/// A copy is the same library. From any thread.
class OneDnn : public LibraryProvider {
  public:
    /// Throws RuntimeError that says where it was looked for, what it lacks, or that its version is none that is known.
    /// `names`: of the library; empty: the usual ones.
    explicit OneDnn(const std::vector<std::string>& names = {});
    explicit OneDnn(const SharedLibrary& library);

    std::string name() const override;
    using LibraryProvider::candidates;
    using LibraryProvider::refusal;
    std::optional<Refusal> refusal(const LibraryKernel& operation) const override { return onednn_refusal(operation); }
    /// `most` 1: the library's own choice, without a list of the others.
    std::variant<std::vector<Candidate>, Refusal> candidates(const LibraryKernel& operation,
                                                             const LibraryConditions& conditions,
                                                             size_t most) const override;

    struct Functions;

  private:
    std::shared_ptr<const Functions> call_;
};

}  // namespace tilewright::cpu
