#pragma once
// Convolutions in the form that cuDNN takes.

#include "libraries/operation.h"

namespace tilewright::cuda {

/// result = activation(data * filter + bias + residual), or the gradient of a convolution by its data in place of the
/// sum: strides, dilations and padding are then those of that convolution, from `result` to `data`. Groups are what
/// makes the data's channels a multiple of the filter's.
struct LibraryConvolution {
    LibraryOperand data;  ///< [images, channels, spatial...], without what is unread
    bool transposed = false;
    LibraryOperand filter;                                   ///< [filters, channels of a group, window...]
    LibraryOperand result;                                   ///< [images, filters, spatial...]
    std::vector<int64_t> strides, dilations, before, after;  ///< per spatial dimension; the last two: zeros around
    std::optional<LibraryOperand> bias;                      ///< [1, filters, 1...]
    std::optional<LibraryOperand> residual;                  ///< of the result's dimensions and strides
    Activation activation = Activation::None;
    double most = 0;  ///< of ClippedRelu
};

std::variant<LibraryConvolution, Refusal> library_convolution(const LibraryOperation& operation);

/// Whether cuDNN has the activation.
bool cudnn_has(Activation activation);

}  // namespace tilewright::cuda
