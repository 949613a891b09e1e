#pragma once
// Samples of a model's inputs, from a folder.

#include <string>
#include <vector>

#include "base/tensor.h"
#include "model/compiled_model.h"

namespace tilewright::quantize {

/// The inputs of one run for each .npz file of `folder` (arrays by the inputs' names), and for each sub-folder that is
/// an ONNX test data set (input_0.pb, ...), in the order of their names; or of `folder` itself where it is a test data
/// set. At most `most` of them. Throws ModelError if there are none, or if one lacks an input.
std::vector<std::vector<Tensor>> load_samples(const std::vector<ModelIo>& declared, const std::string& folder,
                                              size_t most);

}  // namespace tilewright::quantize
