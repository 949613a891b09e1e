#pragma once
// Single tensors from files.

#include <string>
#include <vector>

#include "base/tensor.h"

namespace tilewright {

/// Loads .npy or .pb (an ONNX TensorProto), by the file name's extension. Throws ModelError with the file.
Tensor load_tensor(const std::string& path);

/// PREFIX_0.pb, PREFIX_1.pb, ... of an ONNX test data set's folder, up to the first missing number. Throws ModelError
/// if `folder` is not a folder.
std::vector<Tensor> load_numbered(const std::string& folder, const std::string& prefix);

}  // namespace tilewright
