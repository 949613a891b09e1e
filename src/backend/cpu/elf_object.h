#pragma once
// A relocatable ELF file with data. It is written directly, because LLVM IR would hold several copies of every byte.

#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/shared_object.h"

namespace tilewright::cpu {

/// Returns plans, weights and the exported table of a shared object. The table refers to a kernel by its symbol,
/// which the other objects define.
std::string data_object(const SharedObject& object);

struct KernelObject {
    std::string symbol;
    std::string_view object;
};
/// Of all variants.
std::vector<KernelObject> kernel_objects(const SharedObject& object);

}  // namespace tilewright::cpu
