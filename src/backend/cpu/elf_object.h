#pragma once
// A relocatable ELF file with data. It is written directly, because LLVM IR would hold several copies of every byte.

#include <string>

#include "backend/cpu/shared_object.h"

namespace tilewright::cpu {

/// Returns plan, weights and the exported table of a shared object. The table refers to kernel k by its symbol,
/// which the other objects define.
std::string data_object(const SharedObject& object);

std::string kernel_symbol(const SharedObject& object, size_t k);

}  // namespace tilewright::cpu
