#pragma once
// Which kernels a library of neural network primitives computes as well: a product of matrices, or a convolution of
// pictures, with what follows it. Recognised by what the tensor expression computes; operators play no part.

#include <string>
#include <variant>
#include <vector>

#include "program/program.h"

namespace tilewright::cpu {

/// What follows sum * scale + operands. All of them keep a NaN.
enum class Activation : uint8_t { None, Relu, Gelu, GeluTanh, Silu, Sigmoid, Tanh, HardSwish };

/// A tensor as the library sees it: dimensions of its own, and where their elements lie.
struct LibraryOperand {
    size_t tensor = 0;  ///< of the kernel: inputs, then outputs
    std::vector<int64_t> dims;
    std::vector<int64_t> strides;  ///< elements, per dimension
    /// Of a constant, in place of strides: per dimension, per position, the element's distance from the first one.
    /// Packed weights have no strides.
    std::vector<std::vector<int64_t>> places;
};

struct LibraryOp {
    bool convolution = false;
    /// A product: data [batch..., m, k], weights [batch..., k, n], result [batch..., m, n]; batches of the operands may
    /// be 1 where the result's are not. A convolution: data [n, c, h, w], weights [g, o / g, c / g, kh, kw], result
    /// [n, o, oh, ow].
    LibraryOperand data, weights, result;
    std::vector<int64_t> strides, dilations, begins,
        ends;  ///< of a convolution: h, w; ends: padding behind, may be < 0
    double scale = 1;
    std::vector<LibraryOperand> added;  ///< dimensions of the result, 1 where one element is for all
    Activation activation = Activation::None;

    /// Whether `added[i]` is one number for each column, or channel, side by side.
    bool is_bias(size_t i) const;
};

/// Or why not. `weights`: per input, whether it is a constant; empty: none is.
std::variant<LibraryOp, std::string> library_op(const Program& stages, const std::vector<bool>& weights);

}  // namespace tilewright::cpu
