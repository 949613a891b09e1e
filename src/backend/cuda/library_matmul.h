#pragma once
// Products in the form of cuDNN's graphs, which the library compiles with what follows.

#include "libraries/operation.h"

namespace tilewright::cuda {

/// result = activation(scale * data * weights + operands).
struct LibraryMatmul {
    LibraryOperand data, weights, result;  ///< [batch, rows, sum], [batch, sum, columns], [batch, rows, columns]
    std::vector<LibraryOperand> added;     ///< of the result's dimensions, or 1 (broadcast)
    double scale = 1;
    Activation activation = Activation::None;
    double most = 0;  ///< of ClippedRelu
};

std::variant<LibraryMatmul, Refusal> library_matmul(const LibraryOperation& operation);

}  // namespace tilewright::cuda
