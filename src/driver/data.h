#pragma once
// Single tensors: from files of any kind, and made up.

#include <cstdint>
#include <string>
#include <vector>

#include "base/tensor.h"

namespace tilewright {

/// .npy or .pb (an ONNX TensorProto), by the name's ending. Throws ModelError naming the file.
Tensor load_tensor(const std::string& path);

/// Seeded values that suit most models: floats about N(0, 1), booleans and anything called a mask all ones, other
/// integers 0 or 1 (valid indices of every table).
Tensor random_tensor(const std::string& name, DType dtype, const Shape& shape, uint64_t seed);

/// PREFIX_0.pb, PREFIX_1.pb, ... of an ONNX test data set's folder, up to the first that is not there. Throws
/// ModelError when `folder` is none.
std::vector<Tensor> load_numbered(const std::string& folder, const std::string& prefix);

}  // namespace tilewright
