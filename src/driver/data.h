#pragma once
// Single tensors from files of any kind.

#include <string>
#include <vector>

#include "base/tensor.h"

namespace tilewright {

/// .npy or .pb (an ONNX TensorProto), by the name's ending. Throws ModelError naming the file.
Tensor load_tensor(const std::string& path);

/// PREFIX_0.pb, PREFIX_1.pb, ... of an ONNX test data set's folder, up to the first that is not there. Throws
/// ModelError when `folder` is none.
std::vector<Tensor> load_numbered(const std::string& folder, const std::string& prefix);

}  // namespace tilewright
