#pragma once
// Comparison of tensors.

#include <string>

#include "base/tensor.h"

namespace tilewright {

struct Tolerance {
    double relative = 1e-3;  ///< relative to the expected element
    double absolute = 1e-7;
    /// If > 0, instead of `relative`: the largest difference relative to the largest expected magnitude, or `absolute`
    /// if that is more (if all expected elements are 0).
    double max_relative = 0;
};

struct Comparison {
    bool ok = true;
    std::string reason;  ///< failure: "output 0 'y': element [1, 2] is 3.5, expected 3.25 (of 12 elements 2 differ)"
    double max_difference = 0;
    double max_magnitude = 0;   ///< of the expected finite elements
    double rms_difference = 0;  ///< root mean square over all elements whose difference is finite
};

/// NaN equals NaN, and an infinity equals itself; types and shapes must be equal.
Comparison compare(const Tensor& actual, const Tensor& expected, const Tolerance& tolerance, const std::string& what);

}  // namespace tilewright
