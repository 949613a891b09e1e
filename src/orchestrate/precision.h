#pragma once
// Storage in bf16, for products on matrix instructions (--precision bf16).

#include "cost/target.h"
#include "program/program.h"

namespace tilewright {

/// What narrow_operands changed.
struct NarrowedOperands {
    size_t products = 0;   ///< whose operands are now bf16
    size_t constants = 0;  ///< converted at compile time
    size_t values = 0;     ///< computed tensors now stored in bf16
    size_t copies = 0;     ///< of tensors that others read in f32
};

/// Rounds the operands of those products with weights that fit the target's matrix instructions
/// (Target::bf16_products) to bf16, and the weights of products of one row, which take the time of reading them. Sums
/// stay f32. So does every tensor from which a reduction other than a product or a pooling is computed (normalisations,
/// softmax), and the program's inputs and outputs; where such a tensor is also an operand, it is copied. Results of
/// these products and copies of bf16 tensors are stored in bf16 as well if all readers allow it.
Program narrow_operands(Program program, const Target& target, NarrowedOperands* report = nullptr);

}  // namespace tilewright
