#pragma once
// Proofs that two programs compute the same, for one choice of shapes and all real inputs.
//
// Every element of an output is written down as a real expression of the inputs' elements, and Z3 is asked for inputs
// for which the two differ. What is assumed, beside the arithmetic of the reals:
//   - nothing is divided by 0: x / y is x inv(y), with y inv(y) = 1, inv(x y) = inv(x) inv(y) and
//     inv(inv(x)) = x;
//   - exp(x + y) = exp(x) exp(y), exp(-x) = inv(exp(x)), exp(0) = 1; other functions (tanh, erf, ...) are any functions
//   that are 0 at 0;
//   - max and min are what they are (relu is max(x, 0));
//   - a constant written as a float stands for the simplest fraction that it is the nearest f32 of: 0.16666667 for 1/6.
// Constants of the programs are inputs here: proofs hold for all weights. Numbers are those of which rules know the
// number (RewriteContext::fill), and those that only the second program has (Winograd's matrices).

#include <cstddef>

#include "program/program.h"

namespace tilewright {

enum class Verdict { Proven, Refuted, Unknown };

struct ProofOptions {
    size_t elements = 16;        ///< of an output, spread over it; there are mostly fewer kinds than that
    unsigned work = 20'000'000;  ///< for each, in Z3's units, so that a verdict does not depend on the machine
};

/// The programs must have the same inputs, and all dimensions must be numbers. `after` may have been made of `before`
/// by patches: constants of one ValueId are the same.
Verdict prove_equal(const Program& before, const Program& after, const ProofOptions& options = {});

}  // namespace tilewright
