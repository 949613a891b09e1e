#pragma once
// An operator as an ONNX model, and what to run it on.

#include <string>
#include <vector>

#include "base/tensor.h"
#include "driver/opspec/op_spec.h"
#include "driver/zoo/zoo.h"

namespace tilewright {

/// The operator as a model in memory: `bytes` is the ONNX file, weights drawn from `seed`. Throws ModelError where its
/// values contradict each other or the weights pass the 2 GB that a file can hold.
ZooModel build_op(const OpSpec& op, uint64_t seed = 0);
/// The same without weights: `bytes` is empty.
ZooModel summarize_op(const OpSpec& op);
/// The same, into a file. Throws RuntimeError when it cannot be written.
void write_op(const OpSpec& op, const std::string& path, uint64_t seed = 0);

/// Standard normal numbers, and indices in [0, limit), from `seed`: the same on every machine. Shapes must be fixed.
std::vector<Tensor> draw_inputs(const std::vector<ZooInput>& inputs, uint64_t seed);

}  // namespace tilewright
