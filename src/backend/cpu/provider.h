#pragma once
// Kernels of vendors' libraries on the CPU, candidates beside generated code. What they compute:
// libraries/kernel_library.h.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libraries/kernel_library.h"

namespace tilewright::cpu {

/// One kernel of a library for one operation. Immutable; from any thread.
class LibraryCall {
  public:
    virtual ~LibraryCall() = default;

    /// An input of the stages that is a constant, and has another layout in the library: run() takes it in its place.
    struct Prepared {
        size_t input = 0;
        int64_t bytes = 0;
        friend bool operator==(const Prepared&, const Prepared&) = default;
    };
    virtual std::vector<Prepared> prepared() const = 0;
    /// Writes what stands for prepared()[which]. `constant`: as the stages have it; `to`: 64-byte aligned.
    virtual void prepare(size_t which, const void* constant, void* to) const = 0;
    /// Scratch memory of one run on so many threads, 64-byte aligned. Throws RuntimeError as runs() does.
    virtual int64_t scratch_bytes(int threads) const = 0;

    /// What one run after another needs; one thread at a time.
    class Runs {
      public:
        virtual ~Runs() = default;
        /// `tensors`: inputs, then outputs, of the stages. Throws RuntimeError where the library fails.
        virtual void run(void* const* tensors, void* scratch) = 0;
    };
    /// On so many threads, of the library's own. Throws RuntimeError.
    virtual std::unique_ptr<Runs> runs(int threads) const = 0;
};

using KernelLibrary = tilewright::KernelLibrary<LibraryCall>;

/// Kernels of a library that are measured for one kernel of a plan, of those that it lists first.
constexpr size_t kMostLibraryKernels = 4;

/// A library's kernels for the stages of a generated kernel, as tuning and compilation use them.
class KernelProvider {
  public:
    using Candidate = KernelLibrary::Candidate;

    virtual ~KernelProvider() = default;
    /// "oneDNN 2.6.3".
    virtual std::string name() const = 0;
    /// "oneDNN 2.6.3, jit:avx2": the name of one kernel in the tuning database, plans and reports.
    std::string name_of(const std::string& kernel) const { return name() + ", " + kernel; }
    /// Why it has nothing to offer for these stages; nothing where it may. Cheap. `weights`: per input of the stages,
    /// whether it is a constant of the model; none: no input is.
    virtual std::optional<std::string> refusal(const Program& stages, const std::vector<bool>& weights) const = 0;
    /// The library's kernels for so many threads, in its own order, at least one and at most `most`. Throws
    /// RuntimeError with the reason if there are none.
    virtual std::vector<Candidate> candidates(const Program& stages, const std::vector<bool>& weights, int threads,
                                              size_t most) const = 0;

    /// The library's own choice. Throws RuntimeError with the reason if there is none.
    std::shared_ptr<const LibraryCall> provide(const Program& stages, const std::vector<bool>& weights,
                                               int threads) const;
    /// The kernel with this name (name_of). Throws RuntimeError if the library does not list it.
    std::shared_ptr<const LibraryCall> provide(const Program& stages, const std::vector<bool>& weights, int threads,
                                               const std::string& name) const;
};

/// A library as a provider of kernels for the first of the stages' forms that it accepts.
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
