#pragma once
// Which kernels a vendor's library computes as well: products of matrices, convolutions and attentions, with what
// follows them.

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "backend/cuda/gpu.h"
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

/// A tensor of the kernel as a library is told of it: from its first element on, in whatever order its dimensions lie.
struct LibraryTensor {
    size_t tensor = 0;  ///< of the kernel: inputs, then outputs
    DType type = DType::F32;
    std::vector<int64_t> extents, strides;  ///< strides in elements
    friend bool operator==(const LibraryTensor&, const LibraryTensor&) = default;
};

/// result = epilogue(data * filter + bias + added), a correlation over two or three spatial dimensions. Groups are what
/// makes the data's channels a multiple of the filter's.
struct LibraryConvolution {
    LibraryTensor data;                                      ///< [images, channels, spatial...]
    LibraryTensor filter;                                    ///< [filters, channels of a group, window...]
    LibraryTensor result;                                    ///< [images, filters, spatial...]
    std::vector<int64_t> strides, dilations, before, after;  ///< per spatial dimension; the last two: zeros around
    std::optional<LibraryTensor> bias;                       ///< [1, filters, 1...]
    std::optional<LibraryTensor> added;                      ///< of the result's extents
    LibraryEpilogue epilogue = LibraryEpilogue::None;
    Precision precision = Precision::F32;  ///< what f32 operands may be rounded to
};

/// result = softmax(scale queries keys^T + mask) values, for batch and heads.
struct LibraryAttention {
    LibraryTensor queries;              ///< [batch, heads, rows, width]
    LibraryTensor keys;                 ///< [batch, heads, columns, width]
    LibraryTensor values;               ///< [batch, heads, columns, width of the result]
    LibraryTensor result;               ///< [batch, heads, rows, width of the result]
    std::optional<LibraryTensor> mask;  ///< [1 or batch, 1 or heads, rows, columns], added to the scaled products
    double scale = 1;
};

using LibraryKernel = std::variant<LibraryProduct, LibraryConvolution, LibraryAttention>;

/// Nothing where the kernel is anything else: other stages, sizes that only the run knows, operands that are computed
/// on the way, another type than f32, f16 or bf16. A convolution that is a product of matrices is a product.
std::optional<LibraryKernel> library_kernel(const TileProgram& kernel);

/// A kernel as a library would compute it here: its own choice among its algorithms.
class LibraryPlan {
  public:
    virtual ~LibraryPlan() = default;
    /// Of memory that it takes besides its tensors.
    virtual int64_t workspace_bytes() const = 0;
    /// Asks the stream for it. `tensors`: addresses, in the order of the kernel; returns before it has happened. From
    /// any thread.
    virtual void run(const Gpu::Stream& stream, const std::vector<void*>& tensors, void* workspace) const = 0;
};

/// A vendor's library, loaded at run time. From any thread.
class KernelLibrary {
  public:
    virtual ~KernelLibrary() = default;
    virtual std::string name() const = 0;
    /// Null where the library has no algorithm for it; `why` is then the reason.
    virtual std::shared_ptr<const LibraryPlan> plan(const LibraryKernel& kernel, std::string& why) const = 0;
};

}  // namespace tilewright::cuda
