#pragma once
// Machine code of kernels, kept in files of one folder by what it was made of: a kernel takes LLVM or NVRTC a tenth of
// a second and more, and most kernels of a model have been compiled before.

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tilewright {

/// Several processes may use one folder: files appear whole, and what cannot be read, or is not what it says it is,
/// counts as not there.
class CodeCache {
  public:
    /// The folder is made when something is kept, and not used where others may write to it; empty: nothing is kept.
    /// What has not been asked for longest goes when there are more than `most_bytes`, looked at now and then.
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
    mutable std::atomic<int> kept_{0};
};

}  // namespace tilewright
