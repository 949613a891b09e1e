#pragma once
// Conversions of floats of 8 bits and fewer, by tables: these types are for storage only.

#include <llvm/IR/IRBuilder.h>

#include "base/dtype.h"

namespace tilewright::cpu {

/// Converts codes (i8, or a vector of them) of type t to float, as small_float_to_float.
llvm::Value* emit_small_float_to_float(llvm::IRBuilder<>& b, DType t, llvm::Value* codes);
/// Converts float to codes: to nearest even, saturating, as float_to_small_float.
llvm::Value* emit_float_to_small_float(llvm::IRBuilder<>& b, DType t, llvm::Value* v);

}  // namespace tilewright::cpu
