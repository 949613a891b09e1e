#pragma once
// Loads and stores of vectors: masked and transposed.

#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <vector>

namespace tilewright::cpu {

/// Vectors in memory: `lanes` elements of type `element`, `bytes` each, in registers of `register_bits`.
struct VectorMemory {
    llvm::Type* element = nullptr;
    int bytes = 4;
    int lanes = 8;
    int register_bits = 256;
};
using Annotate = std::function<void(llvm::Instruction*)>;  ///< called with every memory access

/// Loads zero where the mask is false, without reading there. Loads one register at a time: LLVM 19 drops the mask of a
/// wider vector if one half of it is known to be false, and reads out of bounds.
llvm::Value* emit_masked_load(llvm::IRBuilder<>& b, const VectorMemory& m, llvm::Value* pointer, llvm::Value* mask,
                              const Annotate& annotate);
void emit_masked_store(llvm::IRBuilder<>& b, const VectorMemory& m, llvm::Value* pointer, llvm::Value* mask,
                       llvm::Value* v, const Annotate& annotate);

/// Transposes n vectors of n lanes: exchanges lane j of vector i and lane i of vector j. n is a power of 2.
void transpose_registers(llvm::IRBuilder<>& b, std::vector<llvm::Value*>& rows);

}  // namespace tilewright::cpu
