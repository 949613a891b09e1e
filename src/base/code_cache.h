#pragma once
// Machine code and schedules of kernels, kept in files of one folder by what they were made of: a kernel takes LLVM or
// NVRTC a tenth of a second and more, and most kernels of a model have been compiled before.
//
// What is found is run. So the folder must be a PrivateFolder, and each file ends with a hash under a random key, which
// lies in the folder as well, for its owner alone: a file that came from elsewhere, or was put there while the folder
// was open to others, counts as not there.

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/keyed_hash.h"
#include "base/private_folder.h"

namespace tilewright {

/// Several processes may use one folder: files appear whole, and what cannot be read, or is not what it says it is,
/// counts as not there.
class CodeCache {
  public:
    /// One line that names the folder, what is wrong with it and what to do.
    using Warn = std::function<void(const std::string&)>;
    static constexpr int64_t kMostBytes = int64_t{1} << 30;

    /// The folder is made when something is kept; empty: nothing is kept. Of the cache's own files those that were used
    /// least recently go when they have more than `most_bytes`, looked at now and then. `warn`: called once, from any
    /// thread, where the folder cannot be used.
    explicit CodeCache(std::string folder, int64_t most_bytes = kMostBytes, Warn warn = {});

    /// The code that was made of exactly this.
    std::optional<std::string> find(std::string_view made_of) const;
    /// That it cannot be written is no error: then it is compiled again the next time.
    void keep(std::string_view made_of, std::string_view code) const;

  private:
    /// Null where it cannot be used, or is not there and is not to be made.
    const PrivateFolder* folder(bool make) const;
    std::string name_of(std::string_view made_of) const;
    void make_room(const PrivateFolder& folder) const;
    void warn(const std::string& problem) const;

    std::string path_;
    int64_t most_bytes_;
    Warn warn_;
    mutable std::mutex mutex_;
    mutable std::optional<PrivateFolder> folder_;
    mutable HashKey key_{};
    mutable bool unusable_ = false, warned_ = false;
    mutable std::atomic<int> kept_{0};
};

}  // namespace tilewright
