#pragma once
// An operator as an ONNX model, and its inputs.

#include <string>
#include <vector>

#include "base/tensor.h"
#include "driver/opspec/op_spec.h"
#include "driver/zoo/zoo.h"

namespace tilewright {

/// The operator as a model in memory: `bytes` is the ONNX file, weights are drawn from `seed`. Throws ModelError if its
/// parameters are inconsistent or the weights exceed the 2 GB limit of a file.
ZooModel build_op(const OpSpec& op, uint64_t seed = 0);
/// As build_op without weights: `bytes` is empty.
ZooModel summarize_op(const OpSpec& op);
/// As build_op, to a file. Throws RuntimeError if it cannot be written.
void write_op(const OpSpec& op, const std::string& path, uint64_t seed = 0);

/// Standard normal numbers, and indices in [0, limit), from `seed`: the same on every machine. Shapes must be fixed.
std::vector<Tensor> draw_inputs(const std::vector<ZooInput>& inputs, uint64_t seed);

}  // namespace tilewright
