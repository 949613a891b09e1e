#pragma once
// Random programs for property tests: small, valid, and made of what models are made of.

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tilewright {

struct RandomProgramOptions {
    bool symbolic = true;        ///< some programs have a symbolic leading dimension
    bool other_types = true;     ///< some values are f16, i64, i32 or bool
    bool data_dependent = true;  ///< some indices are read from tensors (gather)
};

/// A valid program decided by `seed` alone, made in about `size` steps: elementwise operators with broadcasting, casts,
/// transposes, reshapes, strided slices, pads, concatenations, gathers, reductions, matrix products, convolutions,
/// softmax and layer normalisation. A smaller size is the beginning of the same program, so that a failure shrinks by
/// lowering it. Numbers stay moderate; one or more values nobody else reads are the outputs.
Program random_program(uint64_t seed, int size, const RandomProgramOptions& options = {});

/// Inputs of the declared types, with numbers that suit them (indices inside every dimension they may index). Symbols
/// are given small sizes, decided by `seed`.
std::vector<Tensor> random_inputs(const Program& program, uint64_t seed);

/// The largest difference between two lists of outputs, relative to 1 + |a|; infinity where types, shapes, integers or
/// the places of NaNs and infinities differ.
double largest_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b);

}  // namespace tilewright
