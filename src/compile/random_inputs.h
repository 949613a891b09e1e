#pragma once
// Inputs for whole runs during a compilation, if the user gives none.

#include <cstdint>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "model/session.h"

namespace tilewright {

/// Returns seeded values that suit most models: floats from about N(0, 1); ones for booleans and for names that contain
/// "mask"; else integers 0 or 1 (valid indices of every table).
Tensor random_tensor(const std::string& name, DType dtype, const Shape& shape, uint64_t seed);

/// Returns one tensor per declared input; dynamic dimensions are 1. Throws RuntimeError if memory does not suffice.
std::vector<Tensor> random_inputs(const std::vector<ModelIo>& declared);

}  // namespace tilewright
