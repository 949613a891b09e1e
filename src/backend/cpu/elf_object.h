#pragma once
// A relocatable ELF file with data: written directly, as LLVM IR would hold every byte several times.

#include <string>

#include "backend/cpu/shared_object.h"

namespace tilewright::cpu {

/// Plan, weights and the exported table of a shared object. The table refers to kernel k by kernel_symbol(k), which the
/// other objects define.
std::string data_object(const SharedObject& object);

std::string kernel_symbol(size_t k);

}  // namespace tilewright::cpu
