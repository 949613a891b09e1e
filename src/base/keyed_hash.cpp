#include "base/keyed_hash.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <llvm-c/blake3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "base/private_folder.h"

namespace tilewright {

namespace {

[[noreturn]] void cannot_read(const std::string& path) { throw RuntimeError(fmt::format("cannot read '{}'", path)); }

std::string digest(llvm_blake3_hasher& hasher, std::span<const std::string_view> parts) {
    for (const std::string_view part : parts) llvm_blake3_hasher_update(&hasher, part.data(), part.size());
    std::array<uint8_t, LLVM_BLAKE3_OUT_LEN> out{};
    llvm_blake3_hasher_finalize(&hasher, out.data(), out.size());
    return {reinterpret_cast<const char*>(out.data()), out.size()};
}

constexpr HashKey kNoKey{};

/// A file to be hashed, and its size.
std::pair<Descriptor, uint64_t> opened(const std::string& path) {
    Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0)
        cannot_read(path);
    return {std::move(file), static_cast<uint64_t>(status.st_size)};
}

uint64_t pieces_of(uint64_t bytes) { return (bytes + kHashPieceBytes - 1) / kHashPieceBytes; }

std::string hash_of_hashes(const HashKey& key, const std::vector<std::string>& hashes) {
    const std::vector<std::string_view> parts(hashes.begin(), hashes.end());
    return keyed_hash(key, parts);
}

/// The bytes [begin, end) of the concatenated parts.
std::vector<std::string_view> bytes_of(std::span<const std::string_view> parts, uint64_t begin, uint64_t end) {
    std::vector<std::string_view> out;
    uint64_t at = 0;
    for (const std::string_view part : parts) {
        const uint64_t from = std::max(begin, at), to = std::min(end, at + part.size());
        if (from < to) out.push_back(part.substr(from - at, to - from));
        at += part.size();
    }
    return out;
}

}  // namespace

std::string keyed_hash(const HashKey& key, std::span<const std::string_view> parts) {
    static_assert(sizeof(HashKey) == LLVM_BLAKE3_KEY_LEN);
    llvm_blake3_hasher hasher;
    llvm_blake3_hasher_init_keyed(&hasher, key.data());
    return digest(hasher, parts);
}

std::string plain_hash(std::string_view bytes) {
    llvm_blake3_hasher hasher;
    llvm_blake3_hasher_init(&hasher);
    return digest(hasher, std::span(&bytes, 1));
}

std::string plain_hash_of_file(const std::string& path) {
    constexpr size_t kPiece = 1 << 20;
    const auto [file, size] = opened(path);
    llvm_blake3_hasher hasher;
    llvm_blake3_hasher_init(&hasher);
    std::vector<char> piece(kPiece);
    for (;;) {
        const ssize_t n = ::read(file.get(), piece.data(), piece.size());
        if (n == 0) return digest(hasher, {});
        if (n > 0)
            llvm_blake3_hasher_update(&hasher, piece.data(), static_cast<size_t>(n));
        else if (errno != EINTR)
            cannot_read(path);
    }
}

std::string pieces_hash(const HashKey& key, std::span<const std::string_view> parts) {
    uint64_t bytes = 0;
    for (const std::string_view part : parts) bytes += part.size();
    std::vector<std::string> hashes(pieces_of(bytes));
    parallel_for(hashes.size(), [&](size_t k) {
        hashes[k] = keyed_hash(key, bytes_of(parts, k * kHashPieceBytes, std::min(bytes, (k + 1) * kHashPieceBytes)));
    });
    return hash_of_hashes(key, hashes);
}

std::optional<std::string> pieces_hash_of_file(const HashKey& key, int file, uint64_t at, uint64_t bytes,
                                               std::byte* to) {
    constexpr size_t kRead = 1 << 18;  // it stays in the second cache from the copy to the hash
    std::vector<std::string> hashes(pieces_of(bytes));
    std::atomic<bool> failed{false};
    parallel_for(hashes.size(), [&](size_t k) {
        llvm_blake3_hasher hasher;
        llvm_blake3_hasher_init_keyed(&hasher, key.data());
        std::vector<std::byte> buffer(to == nullptr ? kRead : 0);
        const uint64_t end = std::min(bytes, (k + 1) * kHashPieceBytes);
        for (uint64_t done = k * kHashPieceBytes; done < end && !failed;) {
            std::byte* const here = to == nullptr ? buffer.data() : to + done;
            const size_t most = std::min<uint64_t>(kRead, end - done);
            const ssize_t n = ::pread(file, here, most, static_cast<off_t>(at + done));
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) {
                failed = true;
                return;
            }
            llvm_blake3_hasher_update(&hasher, here, static_cast<size_t>(n));
            done += static_cast<uint64_t>(n);
        }
        hashes[k] = digest(hasher, {});
    });
    return failed ? std::nullopt : std::optional(hash_of_hashes(key, hashes));
}

std::string pieces_hash(std::string_view bytes) { return pieces_hash(kNoKey, std::span(&bytes, 1)); }

std::string pieces_hash_of_file(const std::string& path) {
    const auto [file, size] = opened(path);
    const auto hash = pieces_hash_of_file(kNoKey, file.get(), 0, size);
    if (!hash) cannot_read(path);
    return *hash;
}

std::string hex_digits(std::string_view bytes) {
    std::string out;
    for (const char c : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
    return out;
}

}  // namespace tilewright
