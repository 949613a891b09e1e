#pragma once
// What cuBLASLt and cuDNN are offered.

#include <optional>

#include "libraries/kernel_library.h"

namespace tilewright::cuda {

/// Nothing where the stages are a product as cuBLASLt has it, or a convolution or an attention as cuDNN has it, with
/// the whole epilogue; else why not. Dynamic sizes are those that are assumed. Whether the library has an algorithm or
/// engine for it is known where it is loaded.
std::optional<Refusal> library_refusal(const Program& stages);

/// Whether the stages are a product that cuDNN is offered as a graph of the product and what follows.
bool is_product_graph(const Program& stages);

}  // namespace tilewright::cuda
