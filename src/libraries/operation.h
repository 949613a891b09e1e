#pragma once
// What the stages of a kernel compute, in the terms of a library of kernels: a product of matrices or a convolution,
// with its epilogue. Recognised by what the tensor expression computes; operators play no part. oneDNN, cuBLASLt and
// cuDNN all start from this.

#include <string>
#include <variant>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// Why a kernel is none of a library's.
struct Refusal {
    std::string reason;
};

/// What follows sum * scale + operands. All of them keep a NaN.
enum class Activation : uint8_t { None, Relu, Gelu, GeluTanh, Silu, Sigmoid, Tanh, HardSwish };

/// A tensor with the dimensions that the library gives it.
struct LibraryOperand {
    size_t tensor = 0;  ///< of the kernel: inputs, then outputs
    DType type = DType::F32;
    std::vector<int64_t> dims;
    std::vector<int64_t> strides;  ///< elements, per dimension
    /// Of a constant, in place of strides: per dimension, per position, the element's distance from the first one.
    /// Packed weights have no strides.
    std::vector<std::vector<int64_t>> places;

    bool is_constant() const { return !places.empty(); }
};

struct LibraryOperation {
    bool convolution = false;
    /// A product: data [batch..., m, k], weights [batch..., k, n], result [batch..., m, n]; batch dimensions of an
    /// operand may be 1 where those of the result are not (broadcast).
    /// A convolution: data [n, c, spatial...], weights [groups, o / groups, c / groups, window...], result
    /// [n, o, spatial...], of 2 or 3 spatial dimensions.
    LibraryOperand data, weights, result;
    /// Of a convolution, per spatial dimension. Padding is of zeros; padding at the end may be < 0.
    std::vector<int64_t> strides, dilations, begins, ends;
    double scale = 1;
    std::vector<LibraryOperand> added;  ///< dimensions of the result, 1 where one element is for all
    Activation activation = Activation::None;

    size_t spatial_dims() const { return strides.size(); }
    /// Whether `added[i]` is one number for each column, or channel, contiguous.
    bool is_bias(size_t i) const;
    /// Whether `added[i]` lies as the result does: a residual.
    bool is_residual(size_t i) const;
};

/// The forms that the stages have. A convolution comes before the product that it is as well. `constants`: per input,
/// whether it is a constant of the model; empty: none is.
std::variant<std::vector<LibraryOperation>, Refusal> library_operations(const Program& stages,
                                                                        const std::vector<bool>& constants = {});

}  // namespace tilewright
