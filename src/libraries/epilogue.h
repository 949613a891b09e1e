#pragma once
// The epilogue of a contraction in the form of libraries: activation(scale * sum + operands).

#include "libraries/operation.h"

namespace tilewright {

struct LibraryEpilogue {
    double scale = 1;
    Activation activation = Activation::None;
    double most = 0;              ///< of ClippedRelu
    std::vector<uint32_t> added;  ///< slots
};

/// `result`: the type to which the last value is rounded. The activation is recognised by its values, not by its
/// expression.
std::variant<LibraryEpilogue, Refusal> library_epilogue(const ScalarBody& epilogue, DType result);

}  // namespace tilewright
