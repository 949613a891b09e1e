#pragma once
// Machine code of kernels, kept in files of one folder by what it was made of: NVRTC takes a fifth of a second a
// kernel, and most kernels of a model have been compiled before.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda/nvrtc.h"

namespace tilewright::cuda {

/// Several processes may use one folder: files appear whole, and what cannot be read, or is not what it says it is,
/// counts as not there.
class CodeCache {
  public:
    /// The folder is made when something is kept; empty: nothing is. What has not been asked for longest goes when
    /// there are more than `most_bytes`.
    explicit CodeCache(std::string folder, int64_t most_bytes = int64_t{1} << 30);

    /// The code that was made of exactly this.
    std::optional<std::string> find(std::string_view made_of) const;
    /// That it cannot be written is no error: then it is compiled again the next time.
    void keep(std::string_view made_of, std::string_view code) const;

  private:
    std::string path_of(std::string_view made_of) const;
    void make_room() const;

    std::string folder_;
    int64_t most_bytes_;
};

/// The kernel by itself, called `kernel`: the same text whichever model it is of.
KernelText alone(const KernelText& kernel);

/// The code of each kernel alone, for that compute capability: kept code, or else the compiler's, which is asked for
/// when something has to be compiled (on several threads). Throws RuntimeError as it does. `progress`: "compiling
/// kernel 3 of 17".
std::vector<std::string> machine_code(const std::vector<KernelText>& kernels, int capability, const CodeCache& cache,
                                      const std::function<Nvrtc()>& compiler, int threads = 1,
                                      const std::function<void(const std::string&)>& progress = {});

}  // namespace tilewright::cuda
