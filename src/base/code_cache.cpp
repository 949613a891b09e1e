#include "base/code_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/hash.h"

namespace tilewright {

namespace fs = std::filesystem;

namespace {

// A file: the mark, length of what it was made of, that, the code, a hash of both.
constexpr std::string_view kMark = "twcode1\n";
constexpr int kMakeRoom = 16;  // files added between looks at all of them

std::string number_bytes(uint64_t n) {
    std::string out(sizeof n, '\0');
    std::memcpy(out.data(), &n, sizeof n);
    return out;
}

uint64_t number_at(const std::string& bytes, size_t at) {
    uint64_t n = 0;
    std::memcpy(&n, bytes.data() + at, sizeof n);
    return n;
}

uint64_t check_of(std::string_view made_of, std::string_view code) {
    return hash_combine(hash_text(made_of), hash_text(code));
}

/// Whether nobody else may have put anything there: what is found is run.
bool is_private(const std::string& folder) {
    struct stat s {};
    return ::stat(folder.c_str(), &s) == 0 && S_ISDIR(s.st_mode) && s.st_uid == ::geteuid() &&
           (s.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

CodeCache::CodeCache(std::string folder, int64_t most_bytes) : folder_(std::move(folder)), most_bytes_(most_bytes) {}

std::string CodeCache::path_of(std::string_view made_of) const {
    const uint64_t h = hash_text(made_of);
    return fmt::format("{}/{:016x}{:016x}.code", folder_, h, hash_combine(h, made_of.size()));
}

std::optional<std::string> CodeCache::find(std::string_view made_of) const {
    if (folder_.empty() || !is_private(folder_)) return std::nullopt;
    const std::string path = path_of(made_of);
    std::ifstream in(path, std::ios::binary);
    if (!in) return std::nullopt;
    std::ostringstream all;
    all << in.rdbuf();
    const std::string bytes = all.str();
    const size_t head = kMark.size() + sizeof(uint64_t), least = head + made_of.size() + sizeof(uint64_t);
    if (bytes.size() < least || bytes.compare(0, kMark.size(), kMark) != 0 ||
        number_at(bytes, kMark.size()) != made_of.size() || bytes.compare(head, made_of.size(), made_of) != 0)
        return std::nullopt;
    std::string code = bytes.substr(head + made_of.size(), bytes.size() - least);
    if (number_at(bytes, bytes.size() - sizeof(uint64_t)) != check_of(made_of, code)) return std::nullopt;
    std::error_code ignored;
    fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
    return code;
}

void CodeCache::keep(std::string_view made_of, std::string_view code) const {
    if (folder_.empty()) return;
    std::error_code failed;
    if (fs::create_directories(folder_, failed)) fs::permissions(folder_, fs::perms::owner_all, failed);
    if (!is_private(folder_)) return;
    static std::atomic<int> serial{0};
    const std::string path = path_of(made_of), beside = fmt::format("{}.{}.{}", path, ::getpid(), serial++);
    {
        std::ofstream out(beside, std::ios::binary);
        out << kMark << number_bytes(made_of.size()) << made_of << code << number_bytes(check_of(made_of, code));
        if (!out.flush()) {
            fs::remove(beside, failed);
            return;
        }
    }
    fs::rename(beside, path, failed);
    if (failed) fs::remove(beside, failed);
    if (kept_++ % kMakeRoom == 0) make_room();
}

void CodeCache::make_room() const {
    std::error_code failed;
    int64_t all = 0;
    std::multimap<fs::file_time_type, std::pair<fs::path, int64_t>> files;
    for (fs::directory_iterator it(folder_, failed), end; !failed && it != end; it.increment(failed)) {
        const auto size = static_cast<int64_t>(it->file_size(failed));
        if (failed) return;
        files.emplace(it->last_write_time(failed), std::pair(it->path(), size));
        all += size;
    }
    for (auto it = files.begin(); it != files.end() && all > most_bytes_; ++it) {
        fs::remove(it->second.first, failed);
        all -= it->second.second;
    }
}

}  // namespace tilewright
