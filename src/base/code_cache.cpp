#include "base/code_cache.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <random>
#include <system_error>
#include <vector>

#include "base/error.h"

namespace tilewright {

namespace {

// File format: the mark, the length of the key text, the key text, the code, the keyed hash of everything before it.
constexpr std::string_view kMark = "twcode2\n";
constexpr std::string_view kSuffix = ".code";
// Files of objects: the object, its data, the key text, the lengths of these three, the keyed hash of everything before
// it with the data as their pieces_hash, the mark.
constexpr std::string_view kObjectMark = "twmodel2", kObjectSuffix = ".model";
constexpr size_t kObjectTail = 3 * sizeof(uint64_t);
constexpr const char* kKeyFile = "key";
constexpr size_t kNameDigits = 32, kHashBytes = 32;
constexpr int64_t kChecks = 16;                        // the total size is checked once that part of it was written
constexpr int64_t kMostFileBytes = int64_t{64} << 20;  // the code of a kernel takes about 100 KB

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

/// A temporary file name that no other write uses: name.PROCESS.NUMBER.
std::string temporary_of(const std::string& name) {
    static std::atomic<int> serial{0};
    return fmt::format("{}.{}.{}", name, ::getpid(), serial++);
}

/// The process id in a temporary's suffix ".PROCESS.NUMBER".
std::optional<pid_t> writer_of(std::string_view end) {
    pid_t process = 0;
    unsigned number = 0;
    const char* const last = end.data() + end.size();
    if (!end.starts_with('.')) return std::nullopt;
    const auto [dot, bad] = std::from_chars(end.data() + 1, last, process);
    if (bad != std::errc() || dot == last || *dot != '.' || process <= 0) return std::nullopt;
    const auto [stop, wrong] = std::from_chars(dot + 1, last, number);
    return wrong == std::errc() && stop == last ? std::optional(process) : std::nullopt;
}

enum class Kind { foreign, code, temporary, abandoned };

/// What a file of this name is to the cache: an entry, a temporary or a foreign file.
Kind kind_of(std::string_view name) {
    std::string_view rest;
    if (name.starts_with(kKeyFile)) {
        rest = name.substr(std::strlen(kKeyFile));
        if (rest.empty()) return Kind::foreign;  // the key file is never removed
    } else {
        const auto digits =
            static_cast<size_t>(std::find_if(name.begin(), name.end(),
                                             [](char c) { return (c < '0' || c > '9') && (c < 'a' || c > 'f'); }) -
                                name.begin());
        if (digits != kNameDigits) return Kind::foreign;
        rest = name.substr(digits);
        if (!rest.starts_with(kSuffix) && !rest.starts_with(kObjectSuffix)) return Kind::foreign;
        rest.remove_prefix(rest.starts_with(kSuffix) ? kSuffix.size() : kObjectSuffix.size());
        if (rest.empty()) return Kind::code;
    }
    const auto writer = writer_of(rest);
    if (!writer) return Kind::foreign;
    return ::kill(*writer, 0) != 0 && errno == ESRCH ? Kind::abandoned : Kind::temporary;
}

bool read_at(int fd, void* to, size_t bytes, uint64_t at) {
    auto* next = static_cast<char*>(to);
    while (bytes > 0) {
        const ssize_t got = ::pread(fd, next, bytes, static_cast<off_t>(at));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        next += got;
        at += static_cast<uint64_t>(got);
        bytes -= static_cast<size_t>(got);
    }
    return true;
}

/// The folder's key, created if there is none yet.
HashKey key_in(const PrivateFolder& folder) {
    HashKey key{};
    for (const bool made : {false, true}) {
        if (const auto bytes = folder.read(kKeyFile, key.size()); bytes && bytes->size() == key.size()) {
            std::memcpy(key.data(), bytes->data(), key.size());
            return key;
        }
        if (made) break;
        if (::getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size()))
            throw RuntimeError("the system has no random numbers");
        const std::string_view bytes(reinterpret_cast<const char*>(key.data()), key.size());
        folder.write_new(kKeyFile, temporary_of(kKeyFile), {bytes});
    }
    throw RuntimeError(fmt::format("folder '{0}' holds a file '{1}' that is not a key of this user: remove '{0}/{1}'",
                                   folder.path(), kKeyFile));
}

}  // namespace

int64_t CodeCache::default_bytes(const std::string& folder) {
    constexpr int64_t kLeast = int64_t{256} << 20, kMost = int64_t{8} << 30;
    std::error_code failed;
    std::filesystem::path place = std::filesystem::absolute(folder, failed);
    while (!std::filesystem::exists(place, failed) && place.has_relative_path()) place = place.parent_path();
    const auto space = std::filesystem::space(place, failed);
    return failed ? kLeast : static_cast<int64_t>(std::clamp<uintmax_t>(space.available / 8, kLeast, kMost));
}

CodeCache::CodeCache(std::string folder, Warn warn)
    : CodeCache(folder, folder.empty() ? 0 : default_bytes(folder), std::move(warn)) {}

CodeCache::CodeCache(std::string folder, int64_t most_bytes, Warn warn)
    : path_(std::move(folder)), most_bytes_(most_bytes), warn_(std::move(warn)) {}

void CodeCache::warn(const std::string& problem) const {
    {
        const std::lock_guard lock(mutex_);
        if (std::exchange(warned_, true)) return;
    }
    if (warn_) warn_("compiled kernels are not cached: " + problem);
}

const PrivateFolder* CodeCache::folder(bool make) const {
    if (path_.empty()) return nullptr;
    std::string problem;
    {
        const std::lock_guard lock(mutex_);
        if (folder_) return &*folder_;
        if (unusable_) return nullptr;
        try {
            std::optional<PrivateFolder> opened = PrivateFolder::open(path_, make);
            if (!opened) return nullptr;
            key_ = key_in(*opened);
            folder_ = std::move(opened);
            return &*folder_;
        } catch (const RuntimeError& e) {
            unusable_ = true;
            problem = e.what();
        }
    }
    warn(problem);
    return nullptr;
}

std::string CodeCache::name_of(std::string_view made_of, std::string_view suffix) const {
    const std::string hash = keyed_hash(key_, {"name\n", made_of});
    return hex_digits(hash).substr(0, kNameDigits).append(suffix);
}

std::optional<std::string> CodeCache::find(std::string_view made_of) const {
    const PrivateFolder* folder = this->folder(false);
    if (folder == nullptr) return std::nullopt;
    const std::string name = name_of(made_of, kSuffix);
    const auto bytes = folder->read(name, kMostFileBytes);
    const size_t head = kMark.size() + sizeof(uint64_t), least = head + made_of.size() + kHashBytes;
    if (!bytes || bytes->size() < least || bytes->compare(0, kMark.size(), kMark) != 0 ||
        number_at(*bytes, kMark.size()) != made_of.size() || bytes->compare(head, made_of.size(), made_of) != 0)
        return std::nullopt;
    const std::string_view all = *bytes, said = all.substr(0, all.size() - kHashBytes);
    if (keyed_hash(key_, {said}) != all.substr(said.size())) return std::nullopt;
    folder->touch(name);
    return std::string(said.substr(head + made_of.size()));
}

void CodeCache::keep(std::string_view made_of, std::string_view code) const {
    const int64_t bytes = static_cast<int64_t>(kMark.size() + sizeof(uint64_t) + made_of.size() + code.size());
    if (bytes + static_cast<int64_t>(kHashBytes) > kMostFileBytes) return;  // find() would reject it
    const PrivateFolder* folder = this->folder(true);
    if (folder == nullptr) return;
    const std::string name = name_of(made_of, kSuffix), length = number_bytes(made_of.size());
    try {
        folder->write(name, temporary_of(name),
                      {kMark, length, made_of, code, keyed_hash(key_, {kMark, length, made_of, code})});
    } catch (const RuntimeError& e) {
        warn(e.what());
        return;
    }
    written(*folder, bytes);
}

std::optional<CodeCache::Object> CodeCache::find_object(std::string_view made_of,
                                                        const std::function<std::byte*(uint64_t bytes)>& memory) const {
    const PrivateFolder* folder = this->folder(false);
    if (folder == nullptr) return std::nullopt;
    const std::string name = name_of(made_of, kObjectSuffix);
    int64_t size = 0;
    Object found;
    found.file = folder->open_file(name, most_object_bytes(), size);
    const size_t end = made_of.size() + kObjectTail + kHashBytes + kObjectMark.size();
    if (!found.file || static_cast<uint64_t>(size) < end) return std::nullopt;
    const uint64_t content = static_cast<uint64_t>(size) - end;
    std::string tail(end, '\0');
    if (!read_at(found.file.get(), tail.data(), tail.size(), content)) return std::nullopt;
    const size_t lengths = made_of.size();
    found.object_bytes = number_at(tail, lengths);
    found.data_bytes = number_at(tail, lengths + sizeof(uint64_t));
    if (!tail.ends_with(kObjectMark) || tail.compare(0, made_of.size(), made_of) != 0 ||
        number_at(tail, lengths + 2 * sizeof(uint64_t)) != made_of.size() || found.object_bytes > content ||
        found.data_bytes != content - found.object_bytes)
        return std::nullopt;
    std::string object(found.object_bytes, '\0');
    std::byte* data = memory(found.data_bytes);
    if (data == nullptr || !read_at(found.file.get(), object.data(), object.size(), 0)) return std::nullopt;
    const auto data_hash = pieces_hash_of_file(key_, found.file.get(), found.object_bytes, found.data_bytes, data);
    if (!data_hash) return std::nullopt;
    const std::string_view all = tail;
    const std::string hash = keyed_hash(key_, {object, *data_hash, all.substr(0, lengths + kObjectTail)});
    if (hash != all.substr(lengths + kObjectTail, kHashBytes)) return std::nullopt;
    folder->touch(name);
    return found;
}

void CodeCache::keep_object(std::string_view made_of, std::string_view object,
                            std::span<const std::string_view> data) const {
    uint64_t data_bytes = 0;
    for (const std::string_view part : data) data_bytes += part.size();
    const uint64_t bytes = object.size() + data_bytes + made_of.size() + kObjectTail + kHashBytes + kObjectMark.size();
    if (bytes > static_cast<uint64_t>(most_object_bytes())) return;  // find_object() would reject it
    const PrivateFolder* folder = this->folder(true);
    if (folder == nullptr) return;
    const std::string name = name_of(made_of, kObjectSuffix),
                      lengths = number_bytes(object.size()) + number_bytes(data_bytes) + number_bytes(made_of.size());
    const std::string hash = keyed_hash(key_, {object, pieces_hash(key_, data), made_of, lengths});
    std::vector<std::string_view> parts = {object};
    parts.insert(parts.end(), data.begin(), data.end());
    parts.insert(parts.end(), {made_of, lengths, hash, kObjectMark});
    try {
        folder->write(name, temporary_of(name), parts);
    } catch (const RuntimeError& e) {
        warn(e.what());
        return;
    }
    written(*folder, static_cast<int64_t>(bytes));
}

void CodeCache::written(const PrivateFolder& folder, int64_t bytes) const {
    const int64_t part = most_bytes_ / kChecks;
    // A process begins anywhere between two checks: most of them end before they write as much, and none need list
    // a folder of many thousand files for the few that it adds.
    std::call_once(begun_, [&] { until_check_ = static_cast<int64_t>(std::random_device()()) % (part + 1); });
    const int64_t left = until_check_ -= bytes;
    if (left >= 0) return;
    until_check_ = part;
    make_room(folder);
}

void CodeCache::make_room(const PrivateFolder& folder) const {
    int64_t all = 0;
    std::vector<PrivateFolder::File> own;
    for (PrivateFolder::File& file : folder.files()) {
        const Kind kind = kind_of(file.name);
        if (kind == Kind::abandoned) folder.remove(file.name);
        if (kind != Kind::code && kind != Kind::temporary) continue;
        all += file.bytes;
        own.push_back(std::move(file));
    }
    std::sort(own.begin(), own.end(), [](const PrivateFolder::File& a, const PrivateFolder::File& b) {
        return a.used.tv_sec != b.used.tv_sec ? a.used.tv_sec < b.used.tv_sec : a.used.tv_nsec < b.used.tv_nsec;
    });
    if (all <= most_bytes_) return;
    for (const PrivateFolder::File& file : own) {
        if (all <= most_bytes_ - most_bytes_ / kChecks) return;
        folder.remove(file.name);
        all -= file.bytes;
    }
}

}  // namespace tilewright
