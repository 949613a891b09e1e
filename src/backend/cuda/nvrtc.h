#pragma once
// CUDA C++ -> machine code of a GPU, by NVRTC: NVIDIA's compiler as a library, loaded at run time.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/kernel.h"
#include "base/shared_library.h"

namespace tilewright::cuda {

/// What the assembler gave a kernel.
struct KernelUse {
    int registers = 0;          ///< of a thread
    int64_t shared_bytes = 0;   ///< of a block, besides what a launch requests
    int64_t spilled_bytes = 0;  ///< stored to and loaded from memory, for want of registers, by a thread once through
    int64_t stack_bytes = 0;  ///< of a thread: spilled registers, and arrays that are indexed by what the run computes
    friend bool operator==(const KernelUse&, const KernelUse&) = default;
};
/// By the kernel's name, from what ptxas says with -v.
std::map<std::string, KernelUse> parse_uses(const std::string& log);

class Nvrtc {
  public:
    /// Throws RuntimeError that says where NVRTC was looked for. `names`: of the library; empty: the usual ones.
    explicit Nvrtc(const std::vector<std::string>& names = {});
    explicit Nvrtc(const SharedLibrary& library);

    /// The code (a cubin) of the kernels, behind device_header(), for compute capability `capability` (80, 90, ...).
    /// Throws RuntimeError with the compiler's messages: a text that it refuses is a bug of ours.
    std::string compile(const std::vector<KernelText>& kernels, int capability) const;
    /// Of any text.
    std::string compile(const std::string& text, int capability) const;
    /// What each kernel of the text takes of a multiprocessor. `options`: more words for the compiler.
    std::map<std::string, KernelUse> uses(const std::string& text, int capability,
                                          const std::vector<std::string>& options = {}) const;

    int version() const;  ///< 1300 for 13.0

  private:
    struct Compiled {
        std::string code, log;
    };
    Compiled compiled(const std::string& text, int capability, const std::vector<std::string>& options) const;

    struct Functions;
    std::shared_ptr<const Functions> call_;
};

}  // namespace tilewright::cuda
