#pragma once
// Products in the form that cuBLASLt takes.

#include "libraries/operation.h"

namespace tilewright::cuda {

/// D = activation(scale A B + C + bias), one behind the other for a batch; D is rows x columns, a row's elements side
/// by side.
struct LibraryProduct {
    struct Matrix {
        size_t tensor = 0;  ///< of the kernel: inputs, then outputs
        DType type = DType::F32;
        bool transposed = false;  ///< columns lie side by side in memory, not rows
        int64_t stride = 1;       ///< elements from one row (transposed: column) to the next
        int64_t of_batch = 0;     ///< and from one matrix of the batch to the next
        int64_t offset = 0;       ///< elements of the tensor in front of the first one
        friend bool operator==(const Matrix&, const Matrix&) = default;
    };
    int64_t batch = 1, rows = 1, columns = 1, sum = 1;
    Matrix left, right, result;
    double scale = 1;
    std::optional<Matrix> added;  ///< C, of the result's type
    std::optional<size_t> bias;   ///< tensor with an element for each column, of the result's type
    Activation activation = Activation::None;

    /// What all addresses are multiples of, in bytes, where tensors are aligned to `tensors` bytes.
    int64_t alignment(int64_t tensors) const;
    double flops() const {
        return 2.0 * static_cast<double>(batch) * static_cast<double>(rows) * static_cast<double>(columns) *
               static_cast<double>(sum);
    }
};

std::variant<LibraryProduct, Refusal> library_product(const LibraryOperation& operation);

}  // namespace tilewright::cuda
