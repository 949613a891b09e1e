#pragma once
// CUDA C++ -> machine code of a GPU, by NVRTC: NVIDIA's compiler as a library, loaded at run time.

#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/kernel.h"
#include "backend/cuda/library.h"

namespace tilewright::cuda {

class Nvrtc {
  public:
    /// Throws RuntimeError that says where NVRTC was looked for. `names`: of the library; empty: the usual ones.
    explicit Nvrtc(const std::vector<std::string>& names = {});
    explicit Nvrtc(const Library& library);

    /// The code (a cubin) of the kernels, behind device_header(), for compute capability `capability` (80, 90, ...).
    /// Throws RuntimeError with the compiler's messages: a text that it refuses is a bug of ours.
    std::string compile(const std::vector<KernelText>& kernels, int capability) const;
    /// Of any text.
    std::string compile(const std::string& text, int capability) const;

    int version() const;  ///< 1300 for 13.0

  private:
    struct Functions;
    std::shared_ptr<const Functions> call_;
};

}  // namespace tilewright::cuda
