#pragma once
// Scalar operators -> LLVM values.

#include <llvm/IR/IRBuilder.h>

#include "program/program.h"

namespace tilewright::cpu {

/// The vector of `lanes` elements; the type itself where `lanes` is 0. And back: the lanes of a value, 0 of a scalar.
llvm::Type* with_lanes(llvm::Type* t, int lanes);
int lanes_of(llvm::Value* v);

/// The register type of an element: float, double, i8..i64, i1 for Bool; <lanes x ...> when lanes > 0.
llvm::Type* register_type(llvm::LLVMContext& context, DType t, int lanes);
/// The type in memory: half for F16, i16 for BF16, i8 for Bool and every 8-bit or smaller type.
llvm::Type* storage_type(llvm::LLVMContext& context, DType t, int lanes);
/// From the storage type to the register type of compute_type(t), and back.
llvm::Value* from_storage(llvm::IRBuilder<>& b, DType t, llvm::Value* v);
llvm::Value* to_storage(llvm::IRBuilder<>& b, DType t, llvm::Value* v);

llvm::Constant* constant_of(llvm::LLVMContext& context, DType t, double value, int64_t int_value, int lanes);

/// One operator; operands all scalars or all vectors of one lane count. `operand` is the type of a (of b for Select).
llvm::Value* emit_scalar_op(llvm::IRBuilder<>& b, ScalarOp op, DType result, DType operand, llvm::Value* x,
                            llvm::Value* y, llvm::Value* z);

/// One step of a reduction, and its start.
llvm::Value* emit_combine(llvm::IRBuilder<>& b, Reducer reducer, DType t, llvm::Value* acc, llvm::Value* v);
llvm::Constant* identity_of(llvm::LLVMContext& context, Reducer reducer, DType t, int lanes);

}  // namespace tilewright::cpu
