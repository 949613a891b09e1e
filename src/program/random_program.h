#pragma once
// Random programs for property tests: small, valid, built from the operators that occur in models.

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tilewright {

struct RandomProgramOptions {
    bool symbolic = true;        ///< some programs have a symbolic leading dimension
    bool other_types = true;     ///< some values are f16, i64, i32 or bool
    bool data_dependent = true;  ///< some indices are read from tensors (gather)
};

/// A valid program determined by `seed`, built in about `size` steps: elementwise operators with broadcasting, casts,
/// transposes, reshapes, strided slices, pads, concatenations, gathers, reductions, matrix products, convolutions,
/// softmax and layer normalisation. A smaller size gives a prefix of the same program, so that a failing case can be
/// reduced. Magnitudes stay moderate; the outputs are one or more values without other readers.
Program random_program(uint64_t seed, int size, const RandomProgramOptions& options = {});

/// Inputs of the declared types with suitable values (indices inside every dimension they may index). Symbols get
/// small sizes, determined by `seed`.
std::vector<Tensor> random_inputs(const Program& program, uint64_t seed);

/// The largest difference between two lists of outputs, relative to 1 + |a|; infinity if types, shapes, integers or
/// the positions of NaNs and infinities differ.
double largest_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b);

}  // namespace tilewright
