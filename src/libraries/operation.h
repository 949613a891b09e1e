#pragma once
// What the stages of a kernel compute, as an operation of a kernel library: a matrix product or a convolution, with its
// epilogue. It is recognised from the tensor expression, not from ONNX operators. oneDNN, cuBLASLt and cuDNN share this
// form.

#include <string>
#include <variant>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// The reason why no library operation fits a kernel.
struct Refusal {
    std::string reason;
};

/// The function after sum * scale + operands. All of them propagate NaN.
enum class Activation : uint8_t { None, Relu, ClippedRelu, Gelu, GeluTanh, Silu, Sigmoid, Tanh, HardSwish };

/// A tensor with the dimensions of the library operation.
struct LibraryOperand {
    size_t tensor = 0;  ///< number in the kernel: inputs, then outputs
    DType type = DType::F32;
    std::vector<int64_t> dims;
    std::vector<int64_t> strides;  ///< elements, per dimension
    int64_t offset = 0;            ///< elements in front of the operand's first: a column of a wider tensor
    /// For a constant instead of strides: per dimension and position, the element's offset from the first one. Packed
    /// weights have no strides.
    std::vector<std::vector<int64_t>> places;

    bool is_constant() const { return !places.empty(); }
};

struct LibraryOperation {
    bool convolution = false;
    /// Of a convolution: the data is what a convolution with these strides and windows has as its result, and the
    /// result is the gradient of that by its data. (A transposed convolution.)
    bool transposed = false;
    /// A product: data [batch..., m, k], weights [batch..., k, n], result [batch..., m, n]; batch dimensions of an
    /// operand may be 1 where those of the result are not (broadcast).
    /// A convolution: data [n, c, spatial...], weights [groups, o / groups, c / groups, window...], result
    /// [n, o, spatial...], of 2 or 3 spatial dimensions.
    LibraryOperand data, weights, result;
    /// Of a convolution, per spatial dimension. Padding is zero; padding at the end may be < 0. Of a transposed one all
    /// are those of the other convolution, which pads its result's.
    std::vector<int64_t> strides, dilations, begins, ends;
    double scale = 1;
    std::vector<LibraryOperand> added;  ///< dimensions of the result, or 1 (broadcast)
    Activation activation = Activation::None;
    double most = 0;  ///< of ClippedRelu: min(max(x, 0), most)

    size_t spatial_dims() const { return strides.size(); }
    /// Whether `added[i]` has one contiguous element per column or channel.
    bool is_bias(size_t i) const;
    /// Whether `added[i]` has the layout of the result: a residual.
    bool is_residual(size_t i) const;
};

/// Returns the operations that the stages match; a convolution comes before the product that equals it. `constants`:
/// per input, whether it is a constant of the model; empty: none is.
std::variant<std::vector<LibraryOperation>, Refusal> library_operations(const Program& stages,
                                                                        const std::vector<bool>& constants = {});

}  // namespace tilewright
