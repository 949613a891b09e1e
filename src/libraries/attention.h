#pragma once
// Recognition of attention: a product with scale and mask, a softmax along its columns, a second product.

#include "libraries/operation.h"

namespace tilewright {

/// result = softmax(scale queries keys^T + mask) values, per batch and head. The heads of keys divide the heads, of
/// which as many that follow each other share one. Where a condition (`selected`, `diagonal`) does not hold, a score is
/// `masked`.
struct LibraryAttention {
    LibraryOperand queries;              ///< [batch, heads, rows, width]
    LibraryOperand keys;                 ///< [batch, heads of keys, columns, width]
    LibraryOperand values;               ///< [batch, heads of keys, columns, width of the result]
    LibraryOperand result;               ///< [batch, heads, rows, width of the result]
    std::optional<LibraryOperand> mask;  ///< [1 or batch, 1 or heads, rows, columns], added to the scaled products
    double scale = 1;
    std::optional<LibraryOperand> selected;  ///< Bool [1 or batch, 1 or heads, 1 or rows, columns]: it holds
    std::optional<int64_t> diagonal;         ///< column <= row + diagonal
    double masked = 0;                       ///< a number of masks.h
};

/// Recognises attention with f16 or bf16 operands whose innermost dimension is the width.
std::variant<LibraryAttention, Refusal> library_attention(const Program& stages);

}  // namespace tilewright
