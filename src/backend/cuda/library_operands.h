#pragma once
// How a kernel's operands lie and what follows its sum: what the recognition of all library kernels is made of.

#include <optional>
#include <vector>

#include "backend/cuda/library_kernel.h"

namespace tilewright::cuda {

using AxisStrides = std::vector<int64_t>;  ///< per axis of an expression, in elements

/// Axes that are one: their extents, and strides in each of several tensors.
struct LibraryAxis {
    int64_t extent = 1;
    std::vector<int64_t> of;
};

/// From the first element on, which the expression's first point reads; nothing where axes do not walk through it
/// evenly.
std::optional<AxisStrides> strides_of(const Program& stages, const TensorExpr& e, ValueId v,
                                      const std::vector<Expr>& index);

/// One axis of all, if they lie in each of `tensors` tensors as one would.
std::optional<LibraryAxis> merged(std::vector<LibraryAxis> axes, size_t tensors);

/// The access that is all of the node, behind casts.
std::optional<uint32_t> plain_access(const ScalarBody& body, ScalarId node);

/// kind(sum + operands...): each of them an access, which stands for one element of a tensor.
struct EpilogueOperands {
    LibraryEpilogue kind = LibraryEpilogue::None;
    std::vector<uint32_t> added;
};
/// Nothing where the epilogue is anything else or adds more than `most` operands.
std::optional<EpilogueOperands> epilogue_of(const TensorExpr& e, size_t most);

bool is_library_number(DType t);
/// Of the kernel: inputs, then outputs.
size_t tensor_of(const Program& stages, ValueId v);
/// What the kernel's matrix instructions round f32 operands to.
Precision precision_of(const TileProgram& kernel);

std::optional<LibraryProduct> library_product(const TileProgram& kernel);
std::optional<LibraryConvolution> library_convolution(const TileProgram& kernel);
std::optional<LibraryAttention> library_attention(const TileProgram& kernel);

}  // namespace tilewright::cuda
