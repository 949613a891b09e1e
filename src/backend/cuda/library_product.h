#pragma once
// Which kernels a vendor's library computes as well: products of matrices, with what follows them.

#include <optional>

#include "schedule/gpu/gpu_schedule.h"
#include "tile/tile.h"

namespace tilewright::cuda {

enum class LibraryEpilogue : uint8_t { None, Relu, Gelu };  ///< Gelu: by tanh

/// C = epilogue(A B + bias), one behind the other for a batch; C is rows x columns, a row's elements side by side.
struct LibraryProduct {
    struct Matrix {
        size_t tensor = 0;  ///< of the kernel: inputs, then outputs
        DType type = DType::F32;
        bool turned = false;   ///< columns lie side by side in memory, not rows
        int64_t stride = 1;    ///< elements from one row (turned: column) to the next
        int64_t of_batch = 0;  ///< and from one matrix of the batch to the next
        friend bool operator==(const Matrix&, const Matrix&) = default;
    };
    int64_t batch = 1, rows = 1, columns = 1, sum = 1;
    Matrix left, right, result;
    std::optional<size_t> bias;  ///< an element for each column
    LibraryEpilogue epilogue = LibraryEpilogue::None;
    Precision precision = Precision::F32;  ///< what f32 operands may be rounded to

    double flops() const {
        return 2.0 * static_cast<double>(batch) * static_cast<double>(rows) * static_cast<double>(columns) *
               static_cast<double>(sum);
    }
};

/// Nothing where the kernel is anything else: several stages, sizes that only the run knows, convolutions, operands
/// that are computed on the way, another type than f32, f16 or bf16.
std::optional<LibraryProduct> library_product(const TileProgram& kernel);

}  // namespace tilewright::cuda
