#pragma once
// Machine code and data as one ELF shared object, linked in process by LLD, or as a static archive.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cpu_features.h"

namespace tilewright::cpu {

/// The data that the shared object exports as one symbol (ModelTable in artifact/model_file.h):
///     magic, ABI version and number of variants; address of the variants; address and size of `weights`
/// and for each variant (ModelVariant) address and size of its plan, address of the table of its kernels, their number.
struct SharedObject {
    std::string symbol;                     ///< the only exported one
    std::string kernel_prefix = "kernel_";  ///< kernel k of variant v is the hidden symbol kernel_prefix + "v_k"
    std::string_view magic;                 ///< 8 bytes
    uint32_t abi = 0;
    std::string_view arch = kHostArch;  ///< of all kernels: "x86_64" or "aarch64"
    struct Variant {
        std::vector<std::string_view> kernels;  ///< object files of CompiledKernel::object
        std::string_view plan;
    };
    std::vector<Variant> variants;
    /// Placed in separate read-only segments that start at page boundaries.
    struct Block {
        uint64_t offset = 0;
        std::string_view bytes;
    };
    std::vector<Block> weights;
    uint64_t weight_bytes = 0;  ///< of all blocks
};

/// Writes the shared object to `path`. Kernels of another architecture than this one find the functions of libc and
/// libm, which they call, by the name "libm.so.6". Equal arguments give equal bytes. Throws RuntimeError with LLD's
/// messages, or if a file cannot be written.
void link_shared_object(const SharedObject& object, const std::string& path);
/// Its bytes.
std::string linked_shared_object(const SharedObject& object);

/// Writes the same parts as a static archive that programs are linked with: an object file a kernel, one with the data.
/// Archives in one program need different symbols and prefixes. Equal arguments give equal bytes. Throws RuntimeError
/// with LLVM's message if the file cannot be written.
void write_archive(const SharedObject& object, const std::string& path);

}  // namespace tilewright::cpu
