#pragma once
// Times of runs.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "model/session.h"

namespace tilewright {

/// The times of the steps of one run.
inline std::vector<StepTime> profiled_run(Session& session, const std::vector<Tensor>& inputs) {
    std::vector<StepTime> steps;
    session.set_profile(&steps);
    session.run_in_place(inputs);
    session.set_profile(nullptr);
    return steps;
}

/// The upper one of two in the middle. `x` has an element or more.
inline double median(std::vector<double> x) {
    const auto middle = x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2);
    std::nth_element(x.begin(), middle, x.end());
    return *middle;
}

}  // namespace tilewright
