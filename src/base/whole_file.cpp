#include "base/whole_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file_size_signal.h"
#include "base/private_folder.h"

namespace tilewright {

namespace {

class AtomicFile {
  public:
    explicit AtomicFile(std::string path) : path_(std::move(path)) {
        static std::atomic<int> counter{0};
        temporary_ = fmt::format("{}.{}.{}.tmp", path_, getpid(), counter.fetch_add(1));
        descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (descriptor_ < 0) fail("create");
    }
    ~AtomicFile() {
        if (descriptor_ >= 0) close(descriptor_);
        if (!done_) unlink(temporary_.c_str());
    }
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    void write_all(std::string_view text) {
        while (!text.empty()) {
            const ssize_t written = write(descriptor_, text.data(), text.size());
            if (written < 0 && errno == EINTR) continue;
            if (written < 0) fail("write");
            text.remove_prefix(static_cast<size_t>(written));
        }
    }
    void commit() {
        if (fsync(descriptor_) != 0) fail("write");
        const int descriptor = descriptor_;
        descriptor_ = -1;
        if (close(descriptor) != 0) fail("write");
        if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("replace");
        done_ = true;
    }

  private:
    [[noreturn]] void fail(const char* what) {
        const std::string message = fmt::format("cannot {} {}: {}", what, path_, std::strerror(errno));
        if (descriptor_ >= 0) {  // the destructor does not run when the constructor fails
            close(descriptor_);
            descriptor_ = -1;
        }
        throw RuntimeError(message);
    }

    std::string path_, temporary_;
    int descriptor_ = -1;
    bool done_ = false;
};

}  // namespace

void write_whole_file(const std::string& path, std::string_view text) {
    const NoFileSizeSignal guard;
    const auto folder = std::filesystem::path(path).parent_path();
    if (!folder.empty()) make_private_folders(folder.string());
    AtomicFile file(path);
    file.write_all(text);
    file.commit();
}

}  // namespace tilewright
