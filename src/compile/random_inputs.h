#pragma once
// Inputs that a compilation runs whole plans on, where the user gave none.

#include <cstdint>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "model/session.h"

namespace tilewright {

/// Seeded values that suit most models: floats about N(0, 1), booleans and anything called a mask all ones, other
/// integers 0 or 1 (valid indices of every table).
Tensor random_tensor(const std::string& name, DType dtype, const Shape& shape, uint64_t seed);

/// One tensor for each declared input; dynamic dimensions are 1. Throws RuntimeError where memory does not suffice.
std::vector<Tensor> random_inputs(const std::vector<ModelIo>& declared);

}  // namespace tilewright
