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

/// One kernel of a library per kernel of the plan, by its stages: the view that tuning and sessions have.
class KernelProvider {
  public:
    virtual ~KernelProvider() = default;
    /// "oneDNN 2.6.3": measurements are kept by it.
    virtual std::string name() const = 0;
    /// Why it has nothing to offer for these stages; nothing where it may. Cheap. `weights`: per input of the stages,
    /// whether it is a constant of the model; none: no input is.
    virtual std::optional<std::string> refusal(const Program& stages, const std::vector<bool>& weights) const = 0;
    /// For so many threads. Throws RuntimeError with the reason where it turns out that there is none.
    virtual std::shared_ptr<const LibraryCall> provide(const Program& stages, const std::vector<bool>& weights,
                                                       int threads) const = 0;
};

/// A library of kernels as a provider: of the first of the stages' forms that it has kernels for, the library's own
/// choice.
class LibraryProvider : public KernelProvider, public KernelLibrary {
  public:
    using KernelLibrary::refusal;
    std::optional<std::string> refusal(const Program& stages, const std::vector<bool>& weights) const final;
    std::shared_ptr<const LibraryCall> provide(const Program& stages, const std::vector<bool>& weights,
                                               int threads) const final;
    std::string name() const override = 0;
};

}  // namespace tilewright::cpu
