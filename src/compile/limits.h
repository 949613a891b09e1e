#pragma once
// Limits of a model's resources, checked before any allocation: a file of a hundred bytes can declare an input of a
// terabyte or a loop of 2^62 iterations.

#include "program/program.h"
#include "runtime/memory_limit.h"

namespace tilewright {

/// Checks two limits. Inputs, outputs and constants must fit in usable_memory(), each and together, as far as `names`
/// determines their sizes; else throws RuntimeError. A loop that ends only by its trip count must have fewer than 2^40
/// iterations (a year, at 30 us each); else throws ModelError.
void check_limits(const Program& program, const Bindings& names = {});

/// Returns the names that inputs of these shapes bind. Throws ModelError as bind_shape does.
Bindings bind_inputs(const Program& program, const std::vector<Tensor>& inputs);

}  // namespace tilewright
