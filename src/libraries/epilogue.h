#pragma once
// The epilogue of a contraction as libraries have it: activation(scale * sum + operands).

#include "libraries/operation.h"

namespace tilewright {

struct LibraryEpilogue {
    double scale = 1;
    Activation activation = Activation::None;
    std::vector<uint32_t> added;  ///< slots
};

/// `result`: the type to which the last value is rounded. The function is recognised by its values, however it is
/// written.
std::variant<LibraryEpilogue, Refusal> library_epilogue(const ScalarBody& epilogue, DType result);

}  // namespace tilewright
