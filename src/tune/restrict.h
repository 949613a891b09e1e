#pragma once
// A part of a kernel's result, computed from the inputs without the rest of it.

#include <cstdint>
#include <vector>

#include "tile/tile.h"

namespace tilewright {

/// Points begin .. begin + length - 1 of each spatial axis of the stage that makes an output.
struct Window {
    std::vector<int64_t> begin, length;
};

struct RestrictedKernel {
    /// The same inputs; one output, whose dimensions are the spatial axes of the stage that makes it, cut to the
    /// window. Stages before it compute the box of their value that is needed (all of it where no bounds of what is
    /// read are known, or an output_index lays the value out in another way than axis by axis).
    Program program;
    int64_t work = 0;  ///< points of all stages, times the operators at each
};

/// `stages` has no symbols; `output` is a position among its outputs.
RestrictedKernel restrict_kernel(const Program& stages, size_t output, const Window& window);

/// Points of all stages, times the operators at each.
int64_t work_of(const Program& stages);

/// The stage that makes an output.
const TensorExpr& stage_of_output(const Program& stages, size_t output);

}  // namespace tilewright
