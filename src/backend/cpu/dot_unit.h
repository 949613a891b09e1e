#pragma once
// Vector instructions that add two products of bf16 numbers (AVX512_BF16) or four of bytes (VNNI, or two of 16-bit
// pairs) to every lane, or one of f16 to each half of a lane (AVX512_FP16), and code that does the same on machines
// without them.

#include <llvm/IR/IRBuilder.h>

#include <utility>

namespace tilewright::cpu {

/// Even and odd elements of packed pairs of bf16 (i32 or a vector of them), as float.
std::pair<llvm::Value*, llvm::Value*> widened_pairs(llvm::IRBuilder<>& builder, llvm::Value* pairs);

/// sums[n] + left[n].odd * right[n].odd + left[n].even * right[n].even, in this order (VDPBF16PS). `sums`: a vector of
/// 8 or 16 floats; `left`, `right`: of as many pairs, i32. Emulated, each product is a fused multiply-add; subnormal
/// numbers are then as the caller's mode has them, where the instruction takes them for 0.
llvm::Value* emit_dot_bf16(llvm::IRBuilder<>& builder, llvm::Value* sums, llvm::Value* left, llvm::Value* right,
                           bool emulated);

/// sums[n] + left[n] * right[n] of the even elements and of the odd ones, each rounded to f16 once (VFMADD*PH). All are
/// vectors of pairs of f16, as i32. Emulated, the sum is rounded to f32 first.
llvm::Value* emit_dot_f16(llvm::IRBuilder<>& builder, llvm::Value* sums, llvm::Value* left, llvm::Value* right,
                          bool emulated);
/// sums[n] + (pairs[n].even + pairs[n].odd), the latter rounded to f16, the former to f32. `sums`: a vector of f32.
llvm::Value* emit_add_pairs_f16(llvm::IRBuilder<>& builder, llvm::Value* sums, llvm::Value* pairs, bool emulated);

/// How four products of bytes are added to a lane.
enum class ByteDots : uint8_t {
    Instruction,  ///< VPDPBUSD (VNNI)
    Words,    ///< VPMADDWD of the even bytes and of the odd ones as 16-bit numbers (AVX2, AVX-512BW), which is exact
    Emulated  ///< in 32 bits, one byte of each lane at a time
};

/// sums[n] + the products of four unsigned bytes of `left[n]` and four signed bytes of `right[n]`, modulo 2^32. All are
/// vectors of i32, of 8 or 16 lanes unless emulated.
llvm::Value* emit_dot_bytes(llvm::IRBuilder<>& builder, llvm::Value* sums, llvm::Value* left, llvm::Value* right,
                            ByteDots how);

}  // namespace tilewright::cpu
