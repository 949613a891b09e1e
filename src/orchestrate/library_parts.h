#pragma once
// A kernel as several that run one behind the other, so that libraries compute the sums of it (libraries/cut.h).

#include <optional>
#include <vector>

#include "libraries/cut.h"
#include "orchestrate/plan.h"

namespace tilewright {

struct LibraryParts {
    struct Part {
        Program stages;
        /// Its inputs, then its outputs: of the kernel's inputs, its outputs, then `between`.
        std::vector<size_t> tensors;
        std::optional<size_t> kernel;  ///< generated: its number in the set; nothing: a library's
        /// It reads constants of the model alone, or what such parts have made of them: it runs when the model is
        /// loaded.
        ///     v[c, k, o] = w[1 - k % 2, o, 1 - k // 2, c]    weights of a transposed convolution (libraries/phases.h)
        bool once = false;
    };
    std::vector<Part> parts;
    size_t given = 0;            ///< tensors of the kernel
    std::vector<Value> between;  ///< tensors that one part leaves for others; row-major

    size_t library_kernels() const;
    /// Generated parts that run once.
    size_t kernels_once() const;
};

/// The parts of a kernel for the GPU of `target`; nothing where libraries have it as a whole, or none of its sums.
/// Generated parts are added to `kernels`. `constant`: whether the kernel's inputs are constants of the model; empty:
/// none is.
std::optional<LibraryParts> library_parts(const Program& stages, const Target& target, Precision precision,
                                          const LibraryRefusal& refusal, KernelSet& kernels,
                                          const std::vector<bool>& constant = {});

}  // namespace tilewright
