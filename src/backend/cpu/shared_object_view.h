#pragma once
// The parts of a file that shared_object.h writes, found without loading it: for any architecture, and no code of the
// file runs.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::cpu {

/// Views of the file's bytes.
struct SharedObjectView {
    std::string arch;  ///< LLVM's name: "x86_64", "aarch64", ...
    uint32_t abi = 0;
    struct Variant {
        std::string_view plan;
        uint64_t kernels = 0;
    };
    std::vector<Variant> variants;
    std::string_view weights;  ///< at any alignment
};

/// `file`: the whole of a shared object or an archive. Its table is the exported data that begins with `magic`. Where
/// the table has another ABI version than `abi`, only `arch` and `abi` are set. Throws ModelError with what is wrong,
/// without the file's name: there is no table, or a part lies outside of the file.
SharedObjectView view_shared_object(std::string_view file, std::string_view magic, uint32_t abi);

}  // namespace tilewright::cpu
