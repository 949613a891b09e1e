#pragma once
// Interface of a library of kernels: oneDNN, cuBLASLt or cuDNN. Each of its kernels for an operation is a candidate
// beside the generated kernel.

#include <functional>
#include <memory>

#include "libraries/attention.h"
#include "schedule/gpu/gpu_schedule.h"

namespace tilewright {

using LibraryKernel = std::variant<LibraryOperation, LibraryAttention>;

/// Returns the library operations that the stages of a kernel correspond to; a library may have kernels for only some
/// of them. `constants`: per input, whether it is a constant of the model; empty: none is.
std::variant<std::vector<LibraryKernel>, Refusal> library_kernels(const Program& stages,
                                                                  const std::vector<bool>& constants = {});

/// The conditions under which a library kernel runs.
struct LibraryConditions {
    int threads = 1;                       ///< of the CPU
    Precision precision = Precision::F32;  ///< type to which f32 operands may be rounded
};

/// `Call`: the callable of a kernel, for host pointers or for device pointers and a stream.
template <typename Call>
class KernelLibrary {
  public:
    virtual ~KernelLibrary() = default;

    /// One kernel for one operation.
    struct Candidate {
        std::string kernel;  ///< "brgemm:avx2", "algorithm 0"
        std::function<std::shared_ptr<const Call>()> make;
    };

    /// "oneDNN 2.6.3": part of the key of measurements.
    virtual std::string name() const = 0;
    /// Returns why the library has no kernel, as far as the operation alone decides. Cheap.
    virtual std::optional<Refusal> refusal(const LibraryKernel& operation) const = 0;
    /// Returns 1 to `most` kernels of the library, in its order. Thread-safe.
    virtual std::variant<std::vector<Candidate>, Refusal> candidates(const LibraryKernel& operation,
                                                                     const LibraryConditions& conditions,
                                                                     size_t most) const = 0;
    /// Throws RuntimeError with the reason if the library cannot run the kernel.
    std::shared_ptr<const Call> make(const Candidate& candidate) const { return candidate.make(); }
};

}  // namespace tilewright
