#pragma once
// What a model may ask of the machine. Checked before anything is allocated: a file of a hundred bytes can declare an
// input of a terabyte or a loop of 2^62 iterations.

#include "program/program.h"
#include "runtime/memory_limit.h"

namespace tilewright {

/// Inputs, outputs and constants must fit in usable_memory(), each and together, as far as `names` determines their
/// sizes; a loop that nothing but its trip count ends must count to less than 2^40 (a year, at 30 us an iteration).
/// Throws RuntimeError for the first, ModelError for the second.
void check_limits(const Program& program, const Bindings& names = {});

/// The names that inputs of these shapes bind. Throws ModelError as bind_shape does.
Bindings bind_inputs(const Program& program, const std::vector<Tensor>& inputs);

}  // namespace tilewright
