#include "driver/files.h"

#include <sys/stat.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace tilewright {

std::string read_file(const std::string& path) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0)
        throw RuntimeError(fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
    if (!S_ISREG(info.st_mode)) throw RuntimeError(fmt::format("cannot read '{}': it is no regular file", path));
    std::ifstream in(path, std::ios::binary);
    if (!in) throw RuntimeError(fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
    std::string bytes(static_cast<size_t>(info.st_size), '\0');
    in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (static_cast<size_t>(in.gcount()) != bytes.size())
        throw RuntimeError(fmt::format("cannot read '{}': it became shorter meanwhile", path));
    return bytes;
}

void write_file(const std::string& path, std::initializer_list<std::string_view> parts) {
    errno = 0;
    std::ofstream out(path, std::ios::binary);
    for (const std::string_view part : parts) out.write(part.data(), static_cast<std::streamsize>(part.size()));
    out.close();
    if (!out)
        throw RuntimeError(
            fmt::format("cannot write '{}': {}", path, errno != 0 ? std::strerror(errno) : "the device refuses"));
}

std::string file_name_of(const std::string& tensor) {
    constexpr size_t kLongest = 200;
    std::string s;
    for (const char c : tensor.substr(0, kLongest))
        s += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' ? c : '_';
    return s.empty() || s[0] == '.' ? "_" + s : s;
}

}  // namespace tilewright
