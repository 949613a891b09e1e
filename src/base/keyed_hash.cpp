#include "base/keyed_hash.h"

#include <llvm-c/blake3.h>

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

}  // namespace tilewright
