#include "base/keyed_hash.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <llvm-c/blake3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/error.h"
#include "base/private_folder.h"

namespace tilewright {

namespace {

std::string digest(llvm_blake3_hasher& hasher, std::span<const std::string_view> parts) {
    for (const std::string_view part : parts) llvm_blake3_hasher_update(&hasher, part.data(), part.size());
    std::array<uint8_t, LLVM_BLAKE3_OUT_LEN> out{};
    llvm_blake3_hasher_finalize(&hasher, out.data(), out.size());
    return {reinterpret_cast<const char*>(out.data()), out.size()};
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
    const auto refuse = [&] { throw RuntimeError(fmt::format("cannot read '{}'", path)); };
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) refuse();
    llvm_blake3_hasher hasher;
    llvm_blake3_hasher_init(&hasher);
    std::vector<char> piece(kPiece);
    for (;;) {
        const ssize_t n = ::read(file.get(), piece.data(), piece.size());
        if (n == 0) return digest(hasher, {});
        if (n > 0)
            llvm_blake3_hasher_update(&hasher, piece.data(), static_cast<size_t>(n));
        else if (errno != EINTR)
            refuse();
    }
}

}  // namespace tilewright
