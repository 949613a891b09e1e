#pragma once
// ONNX Runtime as a reference, run by Python in a process of its own.

#include <string>
#include <vector>

#include "graph/import.h"

namespace tilewright::bisect {

/// Every tensor of the model that ONNX Runtime computes for these inputs, without its graph optimisations: outputs and
/// what lies between, those of the main graph. `python`: a Python that has onnxruntime, a path or a name on PATH.
/// Throws RuntimeError: there is no such Python, it lacks onnxruntime, or ONNX Runtime refuses the model.
std::vector<NamedTensor> onnxruntime_tensors(const std::string& python, const std::string& model,
                                             const std::vector<NamedTensor>& inputs);

/// scripts/onnxruntime_tensors.py.
extern const char* const kOnnxruntimeScript;

}  // namespace tilewright::bisect
