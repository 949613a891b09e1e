#pragma once
// An on-disk cache of machine code and schedules, keyed by the text that they were compiled from. LLVM and NVRTC take a
// tenth of a second and more per kernel, and most kernels of a model have been compiled before. Whole models are kept
// as well (compile/kept_models.h).
//
// Cached code is executed. The folder must therefore be a PrivateFolder, and each file ends with a hash under a random
// key that is stored in the folder with access for its owner only. A file that was copied from elsewhere, or placed
// there while the folder was writable by others, counts as missing.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/keyed_hash.h"
#include "base/private_folder.h"

namespace tilewright {

/// Several processes may use one folder: files are created atomically, and an unreadable or corrupt file counts as
/// missing.
class CodeCache {
  public:
    /// Receives one line with the folder, the problem and the remedy.
    using Warn = std::function<void(const std::string&)>;

    /// The folder is created on the first `keep`. An empty name disables the cache. When the cache's own files have
    /// more than `most_bytes`, which is checked once a sixteenth of it was written, the least recently used ones are
    /// removed. `warn` is called once, from any thread, if the folder cannot be used.
    explicit CodeCache(std::string folder, Warn warn = {});
    CodeCache(std::string folder, int64_t most_bytes, Warn warn = {});

    /// An eighth of the free space where the folder is, at least 256 MiB and at most 8 GiB.
    static int64_t default_bytes(const std::string& folder);

    /// The code that was kept for exactly this text.
    std::optional<std::string> find(std::string_view made_of) const;
    /// A failed write is not an error: the kernel is compiled again the next time.
    void keep(std::string_view made_of, std::string_view code) const;

    /// A shared object with data. The object is at the beginning of the file.
    struct Object {
        Descriptor file;
        uint64_t object_bytes = 0, data_bytes = 0;
    };
    /// The object that was kept for exactly this text. Its data is read into the memory that `memory` returns for its
    /// size, before anything else may be done with the object; nothing is found where that is null.
    std::optional<Object> find_object(std::string_view made_of,
                                      const std::function<std::byte*(uint64_t bytes)>& memory) const;
    /// As keep; `data` in parts, one behind the other. Files that take more than a quarter of the cache are not kept.
    void keep_object(std::string_view made_of, std::string_view object, std::span<const std::string_view> data) const;
    int64_t most_object_bytes() const { return most_bytes_ / 4; }

  private:
    /// Null if the folder cannot be used, or is missing and `make` is false.
    const PrivateFolder* folder(bool make) const;
    std::string name_of(std::string_view made_of, std::string_view suffix) const;
    void written(const PrivateFolder& folder, int64_t bytes) const;
    void make_room(const PrivateFolder& folder) const;
    void warn(const std::string& problem) const;

    std::string path_;
    int64_t most_bytes_;
    Warn warn_;
    mutable std::mutex mutex_;
    mutable std::optional<PrivateFolder> folder_;
    mutable HashKey key_{};
    mutable bool unusable_ = false, warned_ = false;
    mutable std::once_flag begun_;
    mutable std::atomic<int64_t> until_check_{0};  ///< bytes to write before the total size is checked
};

}  // namespace tilewright
