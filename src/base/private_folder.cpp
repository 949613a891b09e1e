#include "base/private_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/file_size_signal.h"

namespace tilewright {

namespace fs = std::filesystem;

namespace {

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

[[noreturn]] void unusable(const std::string& folder, const std::string& why, const std::string& remedy) {
    throw RuntimeError(fmt::format("folder '{}' {}: {}", folder, why, remedy));
}

constexpr const char* kElsewhere = "name another one by XDG_CACHE_HOME";

struct stat status_of(int fd, const std::string& path) {
    struct stat s {};
    if (::fstat(fd, &s) != 0) unusable(path, fmt::format("cannot be examined ({})", std::strerror(errno)), kElsewhere);
    return s;
}

/// Throws if another user can exchange the folder's entries.
void require_keeps_entries(int fd, const std::string& path) {
    const struct stat s = status_of(fd, path);
    if (s.st_uid != ::geteuid() && s.st_uid != 0)
        unusable(path, fmt::format("belongs to another user ({})", s.st_uid), kElsewhere);
    if ((s.st_mode & kOthersWrite) != 0 && (s.st_mode & S_ISVTX) == 0)
        unusable(path, fmt::format("can be written by others (mode {:04o})", s.st_mode & 07777U),
                 fmt::format("chmod go-w '{}', or {}", path, kElsewhere));
}

void require_private(int fd, const std::string& path) {
    const struct stat s = status_of(fd, path);
    if (s.st_uid != ::geteuid()) unusable(path, fmt::format("belongs to another user ({})", s.st_uid), kElsewhere);
    if ((s.st_mode & kOthersWrite) != 0)
        unusable(path, fmt::format("can be written by others (mode {:04o})", s.st_mode & 07777U),
                 fmt::format("chmod go-w '{}', or {}", path, kElsewhere));
}

/// The folder `name` in `at`, which must not be a link. No descriptor if it does not exist.
Descriptor open_in(int at, const std::string& name, const std::string& path) {
    Descriptor fd(::openat(at, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (fd || errno == ENOENT) return fd;
    const int error = errno;
    struct stat s {};
    if (::fstatat(at, name.c_str(), &s, AT_SYMLINK_NOFOLLOW) == 0) {
        if (S_ISLNK(s.st_mode)) unusable(path, "is a link", fmt::format("remove it, or {}", kElsewhere));
        if (!S_ISDIR(s.st_mode)) unusable(path, "is not a folder", fmt::format("remove it, or {}", kElsewhere));
    }
    unusable(path, fmt::format("cannot be opened ({})", std::strerror(error)), kElsewhere);
}

/// As open_in; creates the folder if it does not exist.
Descriptor make_in(int at, const std::string& name, const std::string& path) {
    if (::mkdirat(at, name.c_str(), 0700) == 0)
        ::fchmodat(at, name.c_str(), 0700, 0);   // a umask may have removed the owner's bits
    else if (errno != EEXIST && errno != EROFS)  // on a read-only file system the folder may exist
        unusable(path, fmt::format("cannot be made ({})", std::strerror(errno)), kElsewhere);
    return open_in(at, name, path);
}

std::optional<std::string> read_all(int fd, int64_t bytes) {
    std::string text(static_cast<size_t>(bytes), '\0');
    for (size_t at = 0; at < text.size();) {
        const ssize_t got = ::read(fd, text.data() + at, text.size() - at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return std::nullopt;
        at += static_cast<size_t>(got);
    }
    return text;
}

bool write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(fd, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        text.remove_prefix(static_cast<size_t>(written));
    }
    return true;
}

}  // namespace

Descriptor::~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
}

std::optional<PrivateFolder> PrivateFolder::open(const std::string& path, bool make) {
    std::error_code failed;
    fs::path whole = fs::absolute(path, failed).lexically_normal();
    if (!whole.has_filename()) whole = whole.parent_path();  // "folder/"
    const fs::path above = whole.parent_path(), top = above.parent_path();
    if (failed || !whole.has_filename()) unusable(path, "is not a folder", kElsewhere);
    if (make) make_private_folders(top.string());
    const Descriptor first(::open(top.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!first) {
        if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
        unusable(top.string(), fmt::format("cannot be opened ({})", std::strerror(errno)), kElsewhere);
    }
    require_keeps_entries(first.get(), top.string());
    const std::string middle = above.has_filename() ? above.filename().string() : ".";  // ".": the root
    const auto& enter = make ? make_in : open_in;
    const Descriptor second = enter(first.get(), middle, above.string());
    if (!second) return std::nullopt;
    require_keeps_entries(second.get(), above.string());
    Descriptor folder = enter(second.get(), whole.filename().string(), whole.string());
    if (!folder) return std::nullopt;
    require_private(folder.get(), whole.string());
    return PrivateFolder(whole.string(), std::move(folder));
}

Descriptor PrivateFolder::open_file(const std::string& name, int64_t most, int64_t& bytes) const {
    Descriptor file(::openat(folder_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat s {};
    if (!file || ::fstat(file.get(), &s) != 0 || !S_ISREG(s.st_mode) || s.st_uid != ::geteuid() ||
        (s.st_mode & (S_IRWXG | S_IRWXO)) != 0 || s.st_nlink != 1 || s.st_size > most)
        return Descriptor();
    bytes = s.st_size;
    return file;
}

std::optional<std::string> PrivateFolder::read(const std::string& name, int64_t most) const {
    int64_t bytes = 0;
    const Descriptor file = open_file(name, most, bytes);
    return file ? read_all(file.get(), bytes) : std::nullopt;
}

void PrivateFolder::cannot_write(int error) const {
    throw RuntimeError(
        fmt::format("folder '{}' cannot be written ({}): make room, or {}", path_, std::strerror(error), kElsewhere));
}

void PrivateFolder::write_temporary(const std::string& temporary, std::span<const std::string_view> parts) const {
    const NoFileSizeSignal guard;
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    Descriptor file(::openat(folder_.get(), temporary.c_str(), kFlags, 0600));
    if (!file) cannot_write(errno);
    bool good = ::fchmod(file.get(), 0600) == 0;  // a umask may have removed the owner's bits
    for (const std::string_view part : parts) good = good && write_all(file.get(), part);
    const int error = errno;
    if (good) return;
    remove(temporary);
    cannot_write(error);
}

void PrivateFolder::write(const std::string& name, const std::string& temporary,
                          std::span<const std::string_view> parts) const {
    write_temporary(temporary, parts);
    if (::renameat(folder_.get(), temporary.c_str(), folder_.get(), name.c_str()) == 0) return;
    const int error = errno;
    remove(temporary);
    cannot_write(error);
}

void PrivateFolder::write_new(const std::string& name, const std::string& temporary,
                              std::initializer_list<std::string_view> parts) const {
    write_temporary(temporary, std::span(parts.begin(), parts.size()));
    const int at = folder_.get();
    if (::renameat2(at, temporary.c_str(), at, name.c_str(), RENAME_NOREPLACE) == 0) return;
    const int error = errno;
    // A file system without hard links: when two processes write at once, the last file stays.
    if (error != EEXIST && ::faccessat(at, name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0 &&
        ::renameat(at, temporary.c_str(), at, name.c_str()) == 0)
        return;
    remove(temporary);
    if (error != EEXIST && error != EINVAL && error != ENOSYS) cannot_write(error);
}

void PrivateFolder::touch(const std::string& name) const {
    ::utimensat(folder_.get(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

void PrivateFolder::remove(const std::string& name) const { ::unlinkat(folder_.get(), name.c_str(), 0); }

std::vector<PrivateFolder::File> PrivateFolder::files() const {
    std::vector<File> out;
    const int again = ::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);  // with its own read position
    if (again < 0) return out;
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(again), ::closedir);
    if (!entries) {
        ::close(again);
        return out;
    }
    while (const dirent* entry = ::readdir(entries.get())) {  // NOLINT(concurrency-mt-unsafe): the stream is local
        struct stat s {};
        if (::fstatat(folder_.get(), entry->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(s.st_mode) ||
            s.st_uid != ::geteuid())
            continue;
        out.push_back({entry->d_name, s.st_size, s.st_mtim});
    }
    return out;
}

std::optional<std::string> read_trusted_file(const std::string& path, int64_t most) {
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!file) {
        if (errno == ENOENT) return std::nullopt;
        throw RuntimeError(std::strerror(errno));
    }
    struct stat s {};
    if (::fstat(file.get(), &s) != 0) throw RuntimeError(std::strerror(errno));
    if (!S_ISREG(s.st_mode)) throw RuntimeError("it is no regular file");
    if (s.st_uid != ::geteuid() && s.st_uid != 0)
        throw RuntimeError(fmt::format("it belongs to another user ({})", s.st_uid));
    if ((s.st_mode & kOthersWrite) != 0) throw RuntimeError("others may write to it");
    if (s.st_size > most) throw RuntimeError(fmt::format("it has {} bytes, more than {}", s.st_size, most));
    auto text = read_all(file.get(), s.st_size);
    if (!text) throw RuntimeError("it became shorter meanwhile");
    return text;
}

void make_private_folders(const std::string& path) {
    fs::path so_far;
    for (const fs::path& part : fs::path(path)) {
        so_far /= part;
        if (::mkdir(so_far.c_str(), 0700) == 0) continue;
        const int error = errno == EEXIST ? ENOTDIR : errno;
        std::error_code failed;
        if (fs::is_directory(so_far, failed)) continue;  // on a read-only file system, for example
        unusable(so_far.string(), fmt::format("cannot be made ({})", std::strerror(error)), kElsewhere);
    }
}

void require_kept_entries(const std::string& folder) {
    const Descriptor fd(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!fd) unusable(folder, fmt::format("cannot be opened ({})", std::strerror(errno)), kElsewhere);
    require_keeps_entries(fd.get(), folder);
}

}  // namespace tilewright
