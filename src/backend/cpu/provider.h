#pragma once
// Library kernels on the CPU as candidates beside generated code. libraries/kernel_library.h describes their
// operations.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libraries/kernel_library.h"
#include "runtime/kernel.h"

namespace tilewright::cpu {

using KernelLibrary = tilewright::KernelLibrary<LibraryCall>;

/// Limit of library kernels that are measured per kernel of a plan: the first that the library lists.
constexpr size_t kMostLibraryKernels = 4;

/// The interface of tuning and compilation to a library's kernels for the stages of a generated kernel.
class KernelProvider {
  public:
    using Candidate = KernelLibrary::Candidate;

    virtual ~KernelProvider() = default;
    /// "oneDNN 2.6.3".
    virtual std::string name() const = 0;
    /// "oneDNN 2.6.3, jit:avx2": the name of one kernel in the tuning database, plans and reports.
    std::string name_of(const std::string& kernel) const { return name() + ", " + kernel; }
    /// Returns the reason if the library has no kernel for these stages; nothing if it may have one. Cheap. `weights`:
    /// per input of the stages, whether it is a constant of the model; empty: no input is.
    virtual std::optional<std::string> refusal(const Program& stages, const std::vector<bool>& weights) const = 0;
    /// Returns 1 to `most` kernels for `threads` threads, in the library's order. Throws RuntimeError with the reason
    /// if there are none.
    virtual std::vector<Candidate> candidates(const Program& stages, const std::vector<bool>& weights, int threads,
                                              size_t most) const = 0;

    /// Returns the library's own choice. Throws RuntimeError with the reason if there is none.
    std::shared_ptr<const LibraryCall> provide(const Program& stages, const std::vector<bool>& weights,
                                               int threads) const;
    /// Returns the kernel with this name (name_of). Throws RuntimeError if the library does not list it.
    std::shared_ptr<const LibraryCall> provide(const Program& stages, const std::vector<bool>& weights, int threads,
                                               const std::string& name) const;
};

/// Provides a library's kernels for the first of the stages' operations that it accepts.
class LibraryProvider : public KernelProvider, public KernelLibrary {
  public:
    using Candidate = KernelLibrary::Candidate;
    using KernelLibrary::candidates;
    using KernelLibrary::refusal;
    std::optional<std::string> refusal(const Program& stages, const std::vector<bool>& weights) const final;
    std::vector<Candidate> candidates(const Program& stages, const std::vector<bool>& weights, int threads,
                                      size_t most) const final;
    std::string name() const override = 0;
};

}  // namespace tilewright::cpu
