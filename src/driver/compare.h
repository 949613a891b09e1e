#pragma once
// Do two tensors agree?

#include <string>

#include "base/tensor.h"

namespace tilewright {

struct Tolerance {
    double relative = 1e-3;  ///< of the expected element
    double absolute = 1e-7;
    /// When > 0, instead of `relative`: the largest difference may be this share of the largest expected magnitude, or
    /// `absolute` if that is more (where everything expected is 0).
    double max_relative = 0;
};

struct Comparison {
    bool ok = true;
    std::string reason;  ///< why not: "output 0 'y': element [1, 2] is 3.5, expected 3.25 (of 12 elements 2 differ)"
    double max_difference = 0;
    double max_magnitude = 0;   ///< of the expected finite elements
    double rms_difference = 0;  ///< root of the mean square over all elements whose difference is finite
};

/// NaN equals NaN, infinities equal themselves; types and shapes must be equal.
Comparison compare(const Tensor& actual, const Tensor& expected, const Tolerance& tolerance, const std::string& what);

}  // namespace tilewright
