#pragma once
// Machine code of kernels for a GPU: kept code (base/code_cache.h), or else the compiler's.

#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/nvrtc.h"
#include "base/code_cache.h"

namespace tilewright::cuda {

/// The kernel by itself, called `kernel`: the same text whichever model it is of.
KernelText alone(const KernelText& kernel);

/// The code of each kernel alone, for that compute capability: kept code, or else the compiler's, which is asked for
/// when something has to be compiled (on several threads). Throws RuntimeError as it does. `progress`: "compiling
/// kernel 3 of 17".
std::vector<std::string> machine_code(const std::vector<KernelText>& kernels, int capability, const CodeCache& cache,
                                      const std::function<Nvrtc()>& compiler, int threads = 1,
                                      const std::function<void(const std::string&)>& progress = {});

}  // namespace tilewright::cuda
