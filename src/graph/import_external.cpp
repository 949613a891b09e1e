#include "graph/import_external.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/error.h"
#include "graph/graph.h"

namespace tilewright::import_detail {

namespace {

constexpr const char* kCopyHint =
    "copy the model together with its data files into one folder, following links (cp -rL)";

uint64_t parse_number(const std::string& text, const char* key, const std::string& what) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value > INT64_MAX)
        model_error("{}: the {} of its external data is {}, not a number from 0 to 2^63 - 1", what, key,
                    quoted_name(text));
    return value;
}

int read_flags() {
    // Without O_NONBLOCK, opening a pipe for reading would block until a writer opens it.
    return O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
}

FileHandle open_in_one_call(int folder_fd, const std::vector<std::string>& components) {
    std::string path;
    for (const std::string& c : components) path += path.empty() ? c : "/" + c;
    open_how how{};
    how.flags = static_cast<uint64_t>(read_flags());
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    int64_t fd = -1;
    do {
        fd = syscall(SYS_openat2, folder_fd, path.c_str(), &how, sizeof(how));
    } while (fd < 0 && errno == EINTR);
    return FileHandle(static_cast<int>(fd));
}

FileHandle open_component_wise(int folder_fd, const std::vector<std::string>& components) {
    FileHandle folder;
    int at = folder_fd;
    for (size_t i = 0; i + 1 < components.size(); ++i) {
        // Without O_DIRECTORY: a link is then opened as a link, and can be distinguished from a file.
        FileHandle next(openat(at, components[i].c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
        struct stat status {};
        if (!next || fstat(next.get(), &status) != 0) return FileHandle();
        if (!S_ISDIR(status.st_mode)) {
            errno = S_ISLNK(status.st_mode) ? ELOOP : ENOTDIR;
            return FileHandle();
        }
        folder = std::move(next);
        at = folder.get();
    }
    return FileHandle(openat(at, components.back().c_str(), read_flags()));
}

}  // namespace

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
}

FileHandle::~FileHandle() {
    if (fd_ < 0) return;
    const int kept = errno;
    close(fd_);
    errno = kept;
}

FileHandle open_beneath(int folder_fd, const std::vector<std::string>& components, Beneath how) {
    TW_CHECK(!components.empty());
    if (how == Beneath::ComponentWise) return open_component_wise(folder_fd, components);
    FileHandle file = open_in_one_call(folder_fd, components);
    // Errors of kernels before 5.6, and of seccomp filters without this system call.
    const bool unknown_call = !file && (errno == ENOSYS || errno == EPERM);
    if (how == Beneath::Automatic && unknown_call) return open_component_wise(folder_fd, components);
    return file;
}

ExternalRange parse_external_range(const std::vector<std::pair<std::string, std::string>>& entries,
                                   const std::string& what) {
    ExternalRange range;
    bool has_location = false;
    bool has_offset = false;
    for (const auto& [key, value] : entries) {
        const bool again = (key == "location" && has_location) || (key == "offset" && has_offset) ||
                           (key == "length" && range.length.has_value());
        if (again) model_error("{}: its external data gives the {} twice", what, key);
        if (key == "location") {
            range.location = value;
            has_location = true;
        } else if (key == "offset") {
            range.offset = parse_number(value, "offset", what);
            has_offset = true;
        } else if (key == "length") {
            range.length = parse_number(value, "length", what);
        }
    }
    if (!has_location) model_error("{}: its external data has no location", what);
    return range;
}

std::vector<std::string> split_relative_path(const std::string& path, const std::string& what) {
    const auto refuse = [&](const char* why) {
        throw ModelError(fmt::format("{}: the path {} of its external data {}", what, quoted_name(path), why),
                         "external data must be in the model's own folder or below it");
    };
    if (path.empty()) refuse("is empty");
    if (path.front() == '/') refuse("is absolute");
    if (path.find('\\') != std::string::npos) refuse("has a backslash");
    if (path.size() > 1 && path[1] == ':') refuse("names a drive");
    if (std::any_of(path.begin(), path.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }))
        refuse("has a control character");
    if (path.back() == '/') refuse("names a folder");
    std::vector<std::string> components;
    for (size_t begin = 0; begin <= path.size();) {
        const size_t end = std::min(path.find('/', begin), path.size());
        const std::string component = path.substr(begin, end - begin);
        if (component == "..") refuse("leaves the model's folder by '..'");
        if (!component.empty() && component != ".") components.push_back(component);
        begin = end + 1;
    }
    if (components.empty()) refuse("names a folder");
    return components;
}

ModelFolder::ModelFolder(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    if (!fd_) throw RuntimeError(fmt::format("cannot open the folder '{}': {}", path, std::strerror(errno)));
}

FileHandle ModelFolder::open(const std::string& location, const std::string& what, uint64_t& bytes) const {
    const std::vector<std::string> components = split_relative_path(location, what);
    const std::string file_name = quoted_name(location);
    FileHandle file = open_beneath(fd_.get(), components);
    if (!file) {
        if (errno == ELOOP)
            throw ModelError(
                fmt::format("{}: its data file {} is, or is reached through, a symbolic link", what, file_name),
                kCopyHint);
        if (errno == ENOENT)
            throw ModelError(fmt::format("{}: its data file {} does not exist in '{}'", what, file_name, path_),
                             kCopyHint);
        model_error("{}: its data file {} cannot be opened: {}", what, file_name, std::strerror(errno));
    }
    struct stat status {};
    if (fstat(file.get(), &status) != 0)
        throw RuntimeError(fmt::format("cannot read the status of {}: {}", file_name, std::strerror(errno)));
    if (!S_ISREG(status.st_mode)) model_error("{}: its data file {} is not a regular file", what, file_name);
    if (status.st_nlink != 1)
        throw ModelError(fmt::format("{}: its data file {} has {} hard links, where only one is accepted", what,
                                     file_name, status.st_nlink),
                         kCopyHint);
    bytes = static_cast<uint64_t>(status.st_size);
    return file;
}

void ExternalFiles::open(const std::string& location, const std::string& what) {
    if (folder_path_.empty()) {
        split_relative_path(location, what);
        throw ModelError(fmt::format("{}: its data is in the file {}, but no folder for external data is given", what,
                                     quoted_name(location)),
                         "load the model by its path, or name the folder of its data");
    }
    if (!folder_) folder_.emplace(folder_path_);
    file_ = folder_->open(location, what, file_size_);
    open_location_ = location;
}

Tensor ExternalFiles::read(const ExternalRange& range, uint64_t bytes, const std::string& what) {
    if (!file_ || open_location_ != range.location) open(range.location, what);
    if (range.length && *range.length != bytes)
        model_error("{}: its external data is {} bytes long, and its shape and type need {}", what, *range.length,
                    bytes);
    if (range.offset > file_size_ || bytes > file_size_ - range.offset)
        model_error("{}: its data is {} bytes at offset {} of {}, which has {} bytes", what, bytes, range.offset,
                    quoted_name(range.location), file_size_);
    Tensor data(DType::U8, {static_cast<int64_t>(bytes)}, false);
    auto* out = static_cast<char*>(data.mutable_data());
    for (uint64_t done = 0; done < bytes;) {
        constexpr uint64_t kMostAtOnce = uint64_t{1} << 30;
        const ssize_t n = pread(file_.get(), out + done, std::min(bytes - done, kMostAtOnce),
                                static_cast<off_t>(range.offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            throw RuntimeError(fmt::format("cannot read {}: {}", quoted_name(range.location), std::strerror(errno)));
        if (n == 0)
            model_error("{}: its data file {} became shorter while it was read", what, quoted_name(range.location));
        done += static_cast<uint64_t>(n);
    }
    return data;
}

}  // namespace tilewright::import_detail
