#pragma once
// A vendor's library of kernels: oneDNN, cuBLASLt or cuDNN. Each kernel that it has for an operation is a candidate of
// its own beside the generated kernel.

#include <functional>
#include <memory>

#include "libraries/attention.h"
#include "schedule/gpu/gpu_schedule.h"

namespace tilewright {

using LibraryKernel = std::variant<LibraryOperation, LibraryAttention>;

/// The forms in which the stages of a kernel are a library's; a library may have kernels for one and not for another.
/// `constants`: per input, whether it is a constant of the model; empty: none is.
std::variant<std::vector<LibraryKernel>, Refusal> library_kernels(const Program& stages,
                                                                  const std::vector<bool>& constants = {});

/// Under which conditions a library's kernel runs.
struct LibraryConditions {
    int threads = 1;                       ///< of a CPU
    Precision precision = Precision::F32;  ///< to which f32 operands may be rounded
};

/// `Call`: what runs a kernel, for host pointers or for device pointers and a stream.
template <typename Call>
class KernelLibrary {
  public:
    virtual ~KernelLibrary() = default;

    /// One kernel for one operation.
    struct Candidate {
        std::string kernel;  ///< "brgemm:avx2", "algorithm 0"
        std::function<std::shared_ptr<const Call>()> make;
    };

    /// "oneDNN 2.6.3": measurements are kept by it.
    virtual std::string name() const = 0;
    /// Why the library has no kernel for the operation, as far as the operation alone decides. Cheap.
    virtual std::optional<Refusal> refusal(const LibraryKernel& operation) const = 0;
    /// The library's kernels, in its own order, at most `most`; at least one. From any thread.
    virtual std::variant<std::vector<Candidate>, Refusal> candidates(const LibraryKernel& operation,
                                                                     const LibraryConditions& conditions,
                                                                     size_t most) const = 0;
    /// Throws RuntimeError with the reason where it turns out that the library cannot run the kernel.
    std::shared_ptr<const Call> make(const Candidate& candidate) const { return candidate.make(); }
};

}  // namespace tilewright
