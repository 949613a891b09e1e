#include "driver/files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file_size_signal.h"

namespace tilewright {

std::string read_file(const std::string& path) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0)
        throw RuntimeError(fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
    if (!S_ISREG(info.st_mode)) throw RuntimeError(fmt::format("cannot read '{}': it is not a regular file", path));
    std::ifstream in(path, std::ios::binary);
    if (!in) throw RuntimeError(fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
    std::string bytes(static_cast<size_t>(info.st_size), '\0');
    in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (static_cast<size_t>(in.gcount()) != bytes.size())
        throw RuntimeError(fmt::format("cannot read '{}': it became shorter meanwhile", path));
    return bytes;
}

namespace {

[[noreturn]] void cannot_write(const std::string& path, int error) {
    throw RuntimeError(
        fmt::format("cannot write '{}': {}", path, error != 0 ? std::strerror(error) : "the device refuses"));
}

}  // namespace

void write_file(const std::string& path, std::initializer_list<std::string_view> parts) {
    const NoFileSizeSignal guard;
    errno = 0;
    std::ofstream out(path, std::ios::binary);
    for (const std::string_view part : parts) out.write(part.data(), static_cast<std::streamsize>(part.size()));
    out.close();
    if (!out) cannot_write(path, errno);
}

void check_writable(const std::string& path) {
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0) {
        if (S_ISDIR(info.st_mode)) cannot_write(path, EISDIR);
        if (::access(path.c_str(), W_OK) != 0) cannot_write(path, errno);
        return;
    }
    const std::string folder = std::filesystem::path(path).parent_path().string();
    if (path.empty() || ::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0)
        cannot_write(path, path.empty() ? ENOENT : errno);
}

std::string file_name_of(const std::string& tensor) {
    constexpr size_t kLongest = 200;
    std::string s;
    for (const char c : tensor.substr(0, kLongest))
        s += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' ? c : '_';
    return s.empty() || s[0] == '.' ? "_" + s : s;
}

}  // namespace tilewright
