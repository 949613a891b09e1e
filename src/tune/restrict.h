#pragma once
// Restricts a kernel to a window of its result, computed from the inputs.

#include <cstdint>
#include <vector>

#include "tile/tile.h"

namespace tilewright {

/// Points begin .. begin + length - 1 of each spatial axis of the stage that produces an output.
struct Window {
    std::vector<int64_t> begin, length;
};

struct RestrictedKernel {
    /// The same inputs; one output, whose dimensions are the spatial axes of the stage that produces it, restricted to
    /// the window. Earlier stages compute the required box of their value (the complete value if there are no known
    /// bounds of the accesses, or if an output_index does not map axes to dimensions one to one).
    Program program;
    int64_t work = 0;  ///< points of all stages, times the operators per point
};

/// `stages` has no symbols; `output` is a position among its outputs.
RestrictedKernel restrict_kernel(const Program& stages, size_t output, const Window& window);

/// Points of all stages, times the operators per point.
int64_t work_of(const Program& stages);

/// The stage that produces an output.
const TensorExpr& stage_of_output(const Program& stages, size_t output);

}  // namespace tilewright
