#pragma once
// Floats of 8 bits and fewer in generated code: by tables, for they are for storage only.

#include <llvm/IR/IRBuilder.h>

#include "base/dtype.h"

namespace tilewright::cpu {

/// Codes (i8, or a vector of them) of type t -> float. As small_float_to_float.
llvm::Value* emit_small_float_to_float(llvm::IRBuilder<>& b, DType t, llvm::Value* codes);
/// float -> code: to nearest even, saturating. As float_to_small_float.
llvm::Value* emit_float_to_small_float(llvm::IRBuilder<>& b, DType t, llvm::Value* v);

}  // namespace tilewright::cpu
